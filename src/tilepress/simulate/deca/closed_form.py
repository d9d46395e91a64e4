"""The baseline of the simulator: a tile takes as long as the slowest of what it needs, no event considered.

That is memory, the engine's operations and bubbles, the matrix unit, or the round trip of a call, of which there are as
many at once as loaders. Of a memory latency that prefetches reach ahead of, each tile on the way hides its part.
Constants are the simulator's.
"""

from ...formats import WeightFormat
from ...hardware import Machine, MachineError
from ...roofsurface import row_tiles, tile_bytes
from .parameters import LOADERS, STAGES, fitted
from .systems import Accelerated, Baseline, Software, System


def cycles_per_tile(
    machine: Machine, system: System, format: WeightFormat, density: float = 1.0, batch: int = 1
) -> float:
    """Of a core, for all rows."""
    if machine.caches is None or machine.matrix is None or machine.matrix.cycles is None:
        raise MachineError(f"{machine.name} says nothing of its caches, or of its matrix unit's cycles")
    share = fitted("software_memory_share" if isinstance(system, Software) else "memory_share")
    bytes, matrix, panels = tile_bytes(format, density), machine.matrix.cycles, row_tiles(batch, machine)
    memory = bytes / (share * machine.memory.bandwidth) * machine.cycles_per_second
    if isinstance(system, Baseline):
        return max(memory, matrix) + (panels - 1) * max(bytes / (share * machine.caches.llc_rate), matrix)
    if isinstance(system, Software):
        return panels * max(memory, matrix, system.cycles(machine, format, density))
    assert isinstance(system, Accelerated)
    return panels * max(memory, matrix, *_engine(machine, system, format, density, matrix))


def _engine(
    machine: Machine, system: Accelerated, format: WeightFormat, density: float, matrix: float
) -> tuple[float, float]:
    """Its own cycles, and those of a call."""
    assert machine.caches is not None
    way, hit = fitted("one_way"), machine.caches.l2_latency
    operations = system.engine.operations(format, density)
    back = system.back(round(way), round(hit))
    trip = way + hit + tile_bytes(format, density) / machine.caches.line + operations + STAGES - 1 + back
    latency = (machine.caches.memory_latency or fitted("memory_latency")) * 1e-9 * machine.frequency
    reach = {"none": 0, "l2": 1, "deca": system.degree}[system.prefetcher]
    call = max(trip, (trip + latency) / (1 + reach)) / LOADERS
    return operations + fitted("tile_switch"), call if system.tepl else max(call, back + matrix + way)
