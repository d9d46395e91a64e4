"""How fast this machine reads memory: the limit that every kernel's speed is held against."""

import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from .. import _native

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SMALLEST_BUFFER = 256 << 20


def read_bandwidth(threads: int, *, size: int | None = None, repeats: int = 5) -> float:
    """Bytes a second that `threads` threads read from memory: the median of `repeats` passes over `size` bytes, of the
    faster variant."""
    if threads < 1 or repeats < 1:
        raise ValueError("at least one thread and one pass are needed")
    variants = Reader(threads, size).passes().variants
    variants[0]()
    return max(statistics.median(variant() for _ in range(repeats)) for variant in variants)


@dataclass(frozen=True)
class Passes:
    """Calls that read `nbytes` bytes each and return their bytes a second. In one of the `variants` each thread reads
    one byte after the other, in the other in four places at a time: which is faster depends on the machine."""

    nbytes: int
    variants: Sequence[Callable[[], float]]


class Reader:
    """`size` bytes of memory, by default four times the last-level cache, so that caches cannot help, or `most` if that
    is less: every pass goes on where the last one ended, whichever that was, and reads what was read the longest
    ago."""

    def __init__(self, threads: int, size: int | None = None, most: int = sys.maxsize) -> None:
        self._threads = threads
        size = size or min(_buffer_bytes(), most)
        self._memory = torch.ones(size, dtype=torch.uint8).numpy()  # by all threads, near to each
        self._at = 0

    def passes(self, nbytes: int | None = None) -> Passes:
        """Over all of it, or over `nbytes` if that is less."""
        length = min(nbytes or len(self._memory), len(self._memory))
        return Passes(length, [partial(self._read, length, in_parts) for in_parts in (False, True)])

    def _read(self, length: int, in_parts: bool) -> float:
        first = self._at if self._at + length <= len(self._memory) else 0
        self._at = first + length
        return _native.read_bandwidth(self._memory[first : self._at], in_parts, self._threads)[0]


def last_level_cache_bytes() -> int:
    """Size of the largest cache, 0 where the system does not say."""
    sizes = (path.read_text().strip() for path in _CACHES.glob("index*/size"))
    matches = (re.fullmatch(r"(\d+)([KMG]?)", size) for size in sizes)
    return max((int(m[1]) * _UNITS.get(m[2], 1) for m in matches if m), default=0)


def _buffer_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(4 * last_level_cache_bytes(), _SMALLEST_BUFFER), memory // 8)
