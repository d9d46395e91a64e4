"""What all races have in common: torch's threads, the memory that is free, and calls that take turns."""

import math
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from ..tiles.packing import thread_count

MEMORY_SHARE = 0.6  # of what is free, for the copies of all entrants together
FEWEST = 5  # calls, whatever they take; of calls that take many times the budget, FEWEST_LONG
FEWEST_LONG = 3
BURST = 5  # calls that an entrant times in one turn
LONG_CALL = 0.02  # s; what waking threads costs is nothing to it
SETTLE = 0.02  # s that idle OpenMP threads go on spinning for, in the way of another pool's

Step = Callable[[str], None]


@contextmanager
def torch_threads(threads: int | None) -> Iterator[int]:
    """torch with `threads` threads, as our own kernels; with its own number if that is None."""
    before, count = torch.get_num_threads(), thread_count(threads)
    torch.set_num_threads(count)
    try:
        yield count
    finally:
        torch.set_num_threads(before)


def free_memory() -> int:
    """Bytes that the copies of all entrants may take."""
    table = Path("/proc/meminfo")
    available = re.search(r"MemAvailable:\s*(\d+) kB", table.read_text()) if table.exists() else None
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(MEMORY_SHARE * (int(available[1]) * 1024 if available else pages))


def race(
    calls: Sequence[Callable[[], object]], pools: Sequence[str], repeats: int, seconds: float = math.inf
) -> list[float]:
    """Median seconds of each call."""
    return [statistics.median(spent) for spent in race_times(calls, pools, repeats, seconds)]


def race_times(
    calls: Sequence[Callable[[], object]], pools: Sequence[str], repeats: int, seconds: float = math.inf
) -> list[list[float]]:
    """Seconds of each call, in the order they were taken: turn after turn, until each has had its share of time or of
    repeats. The order of turns changes, so that none always comes after the same. `pools`: whose threads each call runs
    on."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    last, order, shuffle = None, list(zip(calls, pools, times, strict=True)), random.Random(0).shuffle
    while any(not is_enough(spent, repeats, seconds) for spent in times):
        shuffle(order)
        for call, pool, spent in order:
            if not is_enough(spent, repeats, seconds):
                time.sleep(SETTLE if pool != last else 0)
                last = pool
                spent.extend(_turn(call, repeats - len(spent)))
    return times


def is_enough(times: Sequence[float], repeats: int, seconds: float) -> bool:
    spent, count = sum(times), len(times)
    return (
        count >= repeats or (spent >= seconds and count >= FEWEST) or (spent >= 10 * seconds and count >= FEWEST_LONG)
    )


def _turn(call: Callable[[], object], most: int) -> list[float]:
    """A call that wakes the threads, and some that count; of long calls, one that does both."""
    first = _seconds(call)
    return [first] if first > LONG_CALL else [_seconds(call) for _ in range(min(BURST, most))]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
