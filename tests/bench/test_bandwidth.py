import numpy as np
import pytest

from tilepress import _native
from tilepress.bench import last_level_cache_bytes, read_bandwidth


@pytest.mark.parametrize("size", [1, 7, 4096, 4096 + 64 + 5, (1 << 20) + 13])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("in_parts", "step"), [(False, 64), (True, 4 * 64)])
def test_every_byte_is_read_once(size, threads, in_parts, step, isa):
    """The checksum adds up whole words, and single bytes where less than a step is left of a megabyte."""
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    expected = 0
    for start in range(0, size, 1 << 20):
        chunk = data[start : start + (1 << 20)]
        words = chunk.size // step * step
        expected += int(chunk[:words].view(np.uint64).sum(dtype=np.uint64)) + int(chunk[words:].sum(dtype=np.uint64))
    _, checksum = _native.read_bandwidth(data, in_parts, threads)
    assert checksum == expected % 2**64


def test_a_rate_is_measured():
    assert read_bandwidth(1, size=1 << 22, repeats=1) > 0
    with pytest.raises(ValueError, match="at least one thread"):
        read_bandwidth(0)


def test_the_cache_has_a_size_or_none_is_known():
    assert last_level_cache_bytes() == 0 or last_level_cache_bytes() >= 1 << 18
