"""Area and power of a processing element: its structures (table 3), and what they do for a tile.

Memories are CACTI's (`hardware.technology.cacti`, configurations in benchmarks/cacti), scaled to 7 nm. Area and energy
of logic are those of our RTL in cells of 7 nm (`hardware.synthesised`), without wires.
"""

from collections.abc import Callable, Mapping

import numpy as np

from ...hardware.machine import TILE_WEIGHTS
from ...hardware.synthesised import Cost, costs
from ...hardware.technology import Memory, cacti
from ...roofsurface import Deca
from ...tiles.layout import BLOCK_NEURONS
from ..units.deca_pe import LOADERS, events, operation_cycles
from ..units.deca_tile import CompressedTile

PUBLISHED = Deca()
QUEUES, TABLES, REST = "queues and output registers", "look-up tables", "rest"
NODE, VOLTAGE = 7, 0.7  # nm; 0.7 V is Stillmaker and Baas' nominal there
CODE_BITS = 6  # the widest codes of which every port of a table looks one up in each cycle: section 6.1
BUSIEST = "mxfp4, 100% kept"  # the measured tile of which every lane has a value in every cycle
MM2 = 1e-6  # µm² to mm²


def area(engine: Deca = PUBLISHED) -> dict[str, float]:
    """mm² at 7 nm of one element, by part. Registers of the small queues count with the rest of the logic."""
    memories = 2 * LOADERS * cacti("queue").area_at(NODE) + LOADERS * cacti("load_unit").area_at(NODE)
    return {
        QUEUES: memories,
        TABLES: engine.tables * cacti("table").area_at(NODE),
        REST: logic_area(engine) * MM2,
    }


def logic_area(engine: Deca) -> float:
    """µm² of the synthesised element."""
    return _of_logic(lambda cost: cost.area, engine)


def logic_energy(engine: Deca) -> float:
    """pJ that the synthesised element takes for a tile of MXFP4, of which every weight is kept."""
    return _of_logic(lambda cost: cost.energy[BUSIEST], engine)


def _of_logic(figure: Callable[[Cost], float], engine: Deca) -> float:
    """Of the synthesised element of that width with the nearest number of tables: they are memory, and hardly change
    it. Beyond the widest, elements grow as between the two widest."""
    kept = {(int(one.settings["W"]), int(one.settings["L"])): figure(one) for one in costs("deca-pe")}

    def of(width: int) -> float:
        counts = [count for size, count in kept if size == width]
        return kept[width, min(counts, key=lambda count: abs(count - engine.tables))]

    narrow, wide = sorted({width for width, _ in kept})[-2:]
    if engine.width <= wide:
        return of(engine.width)
    return of(wide) + (of(wide) - of(narrow)) / (wide - narrow) * (engine.width - wide)


def power(engine: Deca = PUBLISHED, frequency: float = 2.5e9) -> dict[str, float]:
    """Watts at 7 nm of one element at its busiest, by part: what every part does for a tile of which no weight is
    dropped, and what leaks. Memories serve codes of six bits with scales, logic takes MXFP4: a vOp a cycle, both."""
    cycles = TILE_WEIGHTS // engine.width * operation_cycles(engine.width, engine.lookups(CODE_BITS))
    energies = memory_energy(busiest(), engine) | {REST: logic_energy(engine)}
    dynamic = {part: 1e-12 * energy * frequency / cycles for part, energy in energies.items()}
    leaking = leakage(engine)
    return {part: dynamic[part] + leaking.get(part, 0.0) for part in dynamic}


def leakage(engine: Deca = PUBLISHED) -> dict[str, float]:
    """Watts at 7 nm of the memories of one element, by part. That of logic is in its energy."""

    def of(name: str) -> float:
        return 1e-3 * cacti(name).leakage_at(NODE, VOLTAGE)

    return {QUEUES: LOADERS * (2 * of("queue") + of("load_unit")), TABLES: engine.tables * of("table")}


def busiest() -> CompressedTile:
    """A tile that keeps every part at work: a bitmask of ones, a code for each weight, a scale for each neuron."""
    ones = np.ones(TILE_WEIGHTS, np.int64)
    scales, mask = ones.astype(np.float32), ones.astype(np.bool_)
    return CompressedTile(CODE_BITS, ones, mask, scales, group_lines=1, group_entries=BLOCK_NEURONS)


def memory_energy(tile: CompressedTile, engine: Deca = PUBLISHED) -> dict[str, float]:
    """pJ at 7 nm that memories take while one tile is decompressed, by part, from its events."""
    counts = events(tile, engine)
    queue, unit, table = cacti("queue"), cacti("load_unit"), cacti("table")
    in_queues = counts.line_reads * _access(queue, queue.read_energy)
    in_queues += counts.line_writes * _access(queue, queue.write_energy)
    in_queues += counts.requests * _access(unit, unit.write_energy)
    in_queues += counts.searches * (_access(unit, unit.search_energy) + _access(unit, unit.read_energy))
    return {QUEUES: in_queues, TABLES: counts.lookups * _access(table, table.read_energy)}


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: value / total for name, value in parts.items()}


def _access(memory: Memory, energy: float) -> float:
    """pJ at 7 nm."""
    return memory.energy_at(energy, NODE, VOLTAGE)
