import numpy as np
import pytest

from tilepress import _native
from tilepress.bench import last_level_cache_bytes, read_bandwidth
from tilepress.bench.bandwidth import Reader


@pytest.mark.parametrize("size", [1, 7, 4096, 4096 + 64 + 5, (1 << 20) + 13])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("in_parts", "step"), [(False, 64), (True, 4 * 64)])
def test_every_byte_is_read_once(size, threads, in_parts, step, isa):
    """The checksum adds up whole words, and single bytes where less than a step is left."""
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    words = size // step * step
    expected = int(data[:words].view(np.uint64).sum(dtype=np.uint64)) + int(data[words:].sum(dtype=np.uint64))
    _, checksum = _native.read_bandwidth(data, in_parts, threads)
    assert checksum == expected % 2**64


def test_a_rate_is_measured():
    assert read_bandwidth(1, size=1 << 22, repeats=1) > 0
    with pytest.raises(ValueError, match="at least one thread"):
        read_bandwidth(0)


def test_passes_take_turns_through_memory(monkeypatch):
    asked = []
    monkeypatch.setattr(_native, "read_bandwidth", lambda data, in_parts, threads: (1.0, asked.append(data)))
    reader = Reader(1, size=100)
    for nbytes, places in ((None, [0, 0, 0, 0]), (30, [0, 30, 60, 0]), (1000, [0, 0, 0, 0])):
        passes = reader.passes(nbytes)
        assert passes.nbytes == min(nbytes or 100, 100) and len(passes.ways) == 2
        asked.clear()
        assert [passes.ways[1]() for _ in range(4)] == [1.0] * 4
        first = asked[0].data_ptr()
        assert [part.data_ptr() - first for part in asked] == places
        assert all(len(part) == passes.nbytes for part in asked)


def test_the_cache_has_a_size_or_none_is_known():
    assert last_level_cache_bytes() == 0 or last_level_cache_bytes() >= 1 << 18
