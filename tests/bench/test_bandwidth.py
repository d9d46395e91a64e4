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
    with pytest.raises(ValueError, match="at least one thread"):
        _native.read_bandwidth(np.ones(64, np.uint8), False, 0)


def test_every_pass_reads_what_was_read_the_longest_ago(monkeypatch):
    asked = []

    def read(data, in_parts, threads):
        asked.append((data.__array_interface__["data"][0], len(data), in_parts))
        return 1.0, 0

    monkeypatch.setattr(_native, "read_bandwidth", read)
    reader = Reader(1, size=100)
    short, long, whole, more = (reader.passes(nbytes) for nbytes in (20, 30, None, 1000))
    assert [passes.nbytes for passes in (short, long, whole, more)] == [20, 30, 100, 100]
    for call in (*short.variants, *long.variants, *short.variants, *whole.variants, *more.variants, *long.variants):
        assert call() == 1.0
    start = asked[0][0]
    assert [address - start for address, *_ in asked] == [0, 20, 40, 70, 0, 20, 0, 0, 0, 0, 0, 30]
    assert [length for _, length, _ in asked] == [20, 20, 30, 30, 20, 20, 100, 100, 100, 100, 30, 30]
    assert [in_parts for *_, in_parts in asked] == [False, True] * 6


def test_the_cache_has_a_size_or_none_is_known():
    assert last_level_cache_bytes() == 0 or last_level_cache_bytes() >= 1 << 18
