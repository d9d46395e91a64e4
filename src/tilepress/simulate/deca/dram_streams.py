"""What DRAM alone lets cores read: streams of lines, as many under way as a core's misses allow."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...hardware import Machine, MachineError
from .dram import State, Timing, compiled, initial, serve
from .units import UNITS

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Streams:
    """`bandwidth`: bytes a second; shares of bursts that found their row open, no row open, or another."""

    bandwidth: float
    hits: float
    closed: float
    conflicts: float


def read_streams(machine: Machine, lines: Ints) -> Streams:
    """All cores at once, each its addresses in `lines` [cores, lines]; a miss that ends makes room for the next."""
    timing, caches = Timing.of(machine), machine.caches
    if timing is None or caches is None:
        raise MachineError(f"{machine.name} does not describe its DRAM and caches: add memory.dram and caches")
    state = initial(timing)
    units = _read_streams(timing.record(), state, lines, caches.l2_misses)
    total = state[3][0]
    bursts = lines.size * timing.bursts
    hits, closed, conflicts = (int(total[name]) / bursts for name in ("hits", "closed", "conflicts"))
    return Streams(lines.size * caches.line * machine.frequency * UNITS / units, hits, closed, conflicts)


@compiled
def _read_streams(timing: Timing, state: State, lines: Ints, misses: int) -> int:
    """Units until the last line has arrived."""
    cores, count = lines.shape
    free = np.zeros((cores, misses), np.int64)
    due, sent = np.zeros(cores, np.int64), np.zeros(cores, np.int64)
    last = 0
    for _ in range(cores * count):
        core = np.argmin(due)
        miss = np.argmin(free[core])
        free[core, miss] = serve(timing, state, due[core], lines[core, sent[core]])
        last = max(last, free[core, miss])
        sent[core] += 1
        due[core] = free[core].min() if sent[core] < count else np.iinfo(np.int64).max
    return last
