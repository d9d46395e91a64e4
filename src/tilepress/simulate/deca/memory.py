"""What memory does with a line: the last level's misses, then DRAM or, where that is not described, a plain queue."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dram
from .compiled import inlined, records
from .plan import Costs, Ints, Plan
from .units import UNITS

# Timing [1] and state of the DRAM; the ring of misses [llc_misses]: when each has arrived.
Devices = tuple[NDArray[Any], dram.State, Ints]


class Memory:
    """The cycle in which the last request began and the unit of time at which the queue is free, the place in the ring
    of misses; lines asked for, by whom."""

    begun: int
    free: int
    place: int
    demanded: int
    prefetched: int
    dropped: int
    activations_demanded: int
    activations_prefetched: int
    activations_fetched: int


COUNTED = ("demanded", "prefetched", "dropped", "activations_demanded", "activations_prefetched", "activations_fetched")
_NOTHING = dram.Timing(*(1 for _ in dram.Timing.__annotations__))


def memory() -> NDArray[Any]:
    return records(Memory.__annotations__, np.int64, (1,), {})


def devices(plan: Plan) -> Devices:
    timing = plan.dram or _NOTHING
    return np.array([timing.record()]), dram.initial(timing), np.zeros(plan.llc_misses, np.int64)


@inlined
def request(costs: Costs, memory: Memory, devices: Devices, now: int, more: int, address: int) -> int:
    """The cycle in which a line has arrived; memory is busy with it."""
    timing, state, ring = devices
    memory.begun = max(now, memory.begun, ring[memory.place])
    if costs.has_dram:
        units = dram.serve(timing[0], state, memory.begun * UNITS, address)
    else:
        memory.free = max(memory.free, memory.begun * UNITS) + costs.line_time
        units = memory.free
    arrive = -(-units // UNITS) + costs.latency + more
    ring[memory.place] = arrive
    memory.place = memory.place + 1 if memory.place + 1 < len(ring) else 0
    return arrive
