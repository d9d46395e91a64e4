"""How fast this machine reads memory: the limit that every kernel's speed is held against."""

import os
import re
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from .. import _native

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SMALLEST_BUFFER = 256 << 20


def read_bandwidth(threads: int, *, size: int | None = None, repeats: int = 5) -> float:
    """Bytes a second that `threads` threads read from memory: the median of `repeats` of the faster `passes`."""
    if threads < 1 or repeats < 1:
        raise ValueError("at least one thread and one pass are needed")
    _, ways = passes(threads, size)
    ways[0]()
    return max(statistics.median(way() for _ in range(repeats)) for way in ways)


def passes(threads: int, size: int | None = None) -> tuple[int, list[Callable[[], float]]]:
    """What a pass over memory reads, and calls that make one and return its bytes a second. By default it is four times
    the last-level cache, so that caches cannot help. Each thread reads one byte after the other, or in four places at a
    time: what is faster is not the same on every machine."""
    buffer = torch.ones(size or _buffer_bytes(), dtype=torch.uint8)
    return buffer.nbytes, [partial(_pass, buffer, in_parts, threads) for in_parts in (False, True)]


def _pass(buffer: torch.Tensor, in_parts: bool, threads: int) -> float:
    return _native.read_bandwidth(buffer, in_parts, threads)[0]


def last_level_cache_bytes() -> int:
    """Size of the largest cache, 0 where the system does not say."""
    sizes = (path.read_text().strip() for path in _CACHES.glob("index*/size"))
    found = (re.fullmatch(r"(\d+)([KMG]?)", size) for size in sizes)
    return max((int(m[1]) * _UNITS.get(m[2], 1) for m in found if m), default=0)


def _buffer_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(4 * last_level_cache_bytes(), _SMALLEST_BUFFER), memory // 8)
