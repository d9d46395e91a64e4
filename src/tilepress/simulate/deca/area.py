"""Area and power of a processing element: its structures (table 3), and what they do for a tile.

Memories are CACTI's (`hardware.technology.cacti`, configurations in benchmarks/cacti), scaled to 7 nm. The area of
logic is that of our RTL in cells of 7 nm (`hardware.synthesised`), without wires. Energies of adders, multipliers and
flip-flops are those of `hardware.technology.PARTS`, that of the crossbar is of one that was laid out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...hardware.machine import TILE_WEIGHTS
from ...hardware.synthesised import costs
from ...hardware.technology import PARTS, Memory, cacti, energy_scale
from ...roofsurface import Deca
from ...tiles.layout import BLOCK_NEURONS
from ..units.deca_arithmetic import VALUE_BITS
from ..units.deca_pe import LOADERS, events, operation_cycles
from ..units.deca_tile import CompressedTile
from ..units.events import Events

PUBLISHED = Deca()
QUEUES, TABLES, REST = "queues and output registers", "look-up tables", "rest"
NODE, VOLTAGE = 7, 0.7  # nm; 0.7 V is Stillmaker and Baas' nominal there
CODE_BITS = 6  # the widest codes of which every port of a table looks one up in each cycle: section 6.1
ADDER_BITS = 32  # section 7: of POPCNT and the parallel prefix sum
MM2 = 1e-6  # µm² to mm²


@dataclass(frozen=True)
class Crossbar:
    """One that was laid out: pJ of a cycle in which all ports work, wires from side to side."""

    energy: float
    wires: int
    node: float
    voltage: float


# Cakir, Ho, Lexau and Mai, ISLPED 2015: layout in 40 nm, 0.9 V, 16 × 16 ports of 64 bits.
CROSSBAR = Crossbar(energy=110.0, wires=16 * 64, node=40, voltage=0.9)


def area(engine: Deca = PUBLISHED) -> dict[str, float]:
    """mm² at 7 nm of one element, by part. Registers of the small queues count with the rest of the logic."""
    memories = 2 * LOADERS * cacti("queue").area_at(NODE) + LOADERS * cacti("load_unit").area_at(NODE)
    return {
        QUEUES: memories,
        TABLES: engine.tables * cacti("table").area_at(NODE),
        REST: logic_area(engine.width, engine.tables) * MM2,
    }


def logic_area(width: int, tables: int) -> float:
    """µm² of the synthesised element of that width with the nearest number of tables: they are memory, and hardly
    change it. Beyond the widest, elements grow as between the two widest."""
    kept = {(int(one.settings["W"]), int(one.settings["L"])): one.area for one in costs("deca-pe")}
    counts = [count for size, count in kept if size == width]
    if counts:
        return kept[width, min(counts, key=lambda count: abs(count - tables))]
    narrow, wide = sorted({size for size, _ in kept})[-2:]
    lane = (logic_area(wide, tables) - logic_area(narrow, tables)) / (wide - narrow)
    return logic_area(wide, tables) + lane * (width - wide)


def power(engine: Deca = PUBLISHED, frequency: float = 2.5e9) -> dict[str, float]:
    """Watts at 7 nm of one element at its busiest, by part: what every part does for a tile of which no weight is
    dropped, with codes of six bits and scales; and what memories leak. Of logic, leakage is not known."""
    cycles = TILE_WEIGHTS // engine.width * operation_cycles(engine.width, engine.lookups(CODE_BITS))
    dynamic = {part: 1e-12 * energy * frequency / cycles for part, energy in tile_energy(busiest(), engine).items()}
    leaking = leakage(engine)
    return {part: dynamic[part] + leaking.get(part, 0.0) for part in dynamic}


def leakage(engine: Deca = PUBLISHED) -> dict[str, float]:
    """Watts at 7 nm of the memories of one element, by part."""

    def of(name: str) -> float:
        return 1e-3 * cacti(name).leakage_at(NODE, VOLTAGE)

    return {QUEUES: LOADERS * (2 * of("queue") + of("load_unit")), TABLES: engine.tables * of("table")}


def busiest() -> CompressedTile:
    """A tile that keeps every part at work: a bitmask of ones, a code for each weight, a scale for each neuron."""
    ones = np.ones(TILE_WEIGHTS, np.int64)
    scales, mask = ones.astype(np.float32), ones.astype(np.bool_)
    return CompressedTile(CODE_BITS, ones, mask, scales, group_lines=1, group_entries=BLOCK_NEURONS)


def tile_energy(tile: CompressedTile, engine: Deca = PUBLISHED) -> dict[str, float]:
    """pJ at 7 nm that decompressing one tile takes, by part, from its events."""
    counts = events(tile, engine)
    queue, unit, table = cacti("queue"), cacti("load_unit"), cacti("table")
    in_queues = counts.line_reads * _access(queue, queue.read_energy)
    in_queues += counts.line_writes * _access(queue, queue.write_energy)
    in_queues += counts.requests * _access(unit, unit.write_energy)
    in_queues += counts.searches * (_access(unit, unit.search_energy) + _access(unit, unit.read_energy))
    stages = VALUE_BITS * (len(tile.codes) + TILE_WEIGHTS)
    in_queues += (counts.register_bits - stages) * _switch("flip_flop")
    rest = stages * _switch("flip_flop") + _arithmetic(counts, engine)
    return {QUEUES: in_queues, TABLES: counts.lookups * _access(table, table.read_energy), REST: rest}


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: value / total for name, value in parts.items()}


def _arithmetic(counts: Events, engine: Deca) -> float:
    """pJ of adders, multipliers and the crossbar."""
    adds = counts.adds * ADDER_BITS * _switch("add") + counts.float_adds * _switch("fp16_add")
    scaling = energy_scale(NODE, VOLTAGE) / energy_scale(CROSSBAR.node, CROSSBAR.voltage)
    move = CROSSBAR.energy * _crossings(engine) / engine.width * scaling
    return adds + counts.float_multiplies * _switch("fp16_multiply") + counts.crossbar_moves * move


def _crossings(engine: Deca) -> float:
    """Of wires in the crossbar, over those of the one that was laid out: half of a square, since it is a triangle. So
    does its energy grow: with the wires, and with the length of each."""
    return (VALUE_BITS * engine.width / CROSSBAR.wires) ** 2 / 2


def _access(memory: Memory, energy: float) -> float:
    """pJ at 7 nm."""
    return memory.energy_at(energy, NODE, VOLTAGE)


def _switch(name: str) -> float:
    """pJ at 7 nm."""
    return PARTS[name].energy * energy_scale(NODE, VOLTAGE)
