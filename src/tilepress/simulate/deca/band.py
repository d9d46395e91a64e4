"""How far a figure depends on what nobody publishes: the latency of memory, its kind, and how far prefetches go ahead.

The fitted latency is what table 5 says of the paper's simulator; machines of this kind are measured at 110 to 150 ns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...hardware import Machine
from .parameters import DEGREE
from .systems import Accelerated, System

LATENCIES = (57.0, 150.0)  # ns, idle: the fitted one, and the most that is measured of such machines with load
DEGREES = (DEGREE, 15)  # tiles ahead: DECA's, and the most of its table 5


@dataclass(frozen=True)
class Memory:
    """`latency`: ns from the L2 cache to memory and back when nothing else is asked for. `dram`: with the machine's
    channels, banks and refreshes, not a queue with this latency alone."""

    latency: float
    dram: bool = False

    def of(self, machine: Machine) -> Machine:
        """The machine with this latency; one without caches as it is."""
        return machine.changed(caches={"memory_latency": self.latency}) if machine.caches else machine


MEMORIES = (*(Memory(latency) for latency in LATENCIES), *(Memory(latency, dram=True) for latency in LATENCIES))


def band(system: System) -> Iterator[tuple[Memory, System]]:
    """All that a figure is looked at with: DECA also with deeper prefetches."""
    systems: list[System] = [system]
    if isinstance(system, Accelerated) and system.prefetcher == "deca":
        systems = [replace(system, degree=degree) for degree in dict.fromkeys((system.degree, *DEGREES))]
    for memory in MEMORIES:
        for one in systems:
            yield memory, one
