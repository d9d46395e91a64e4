"""Area and power of a processing element: its structures (table 3), what they do for a tile, and constants of others.

Memories are CACTI's (`hardware.technology.cacti`, configurations in benchmarks/cacti); adders, multipliers, flip-flops
are `hardware.technology.PARTS`; the crossbar is one that was laid out. All is scaled to 7 nm.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...hardware.machine import TILE_WEIGHTS
from ...hardware.technology import PARTS, Memory, area_scale, cacti, energy_scale
from ...roofsurface import Deca
from ...tiles.layout import BLOCK_NEURONS
from ..units.deca_arithmetic import VALUE_BITS
from ..units.deca_pe import LOADERS, events, operation_cycles
from ..units.deca_tile import LINE_BITS, CompressedTile
from ..units.events import Events

PUBLISHED = Deca()
QUEUES, TABLES, REST = "queues and output registers", "look-up tables", "rest"
NODE, VOLTAGE = 7, 0.7  # nm; 0.7 V is Stillmaker and Baas' nominal there
CODE_BITS = 6  # the widest codes of which every port of a table looks one up in each cycle: section 6.1
ADDER_BITS = 32  # section 7: of POPCNT and the parallel prefix sum
QUEUE_BITS = 64 * 8  # table 3: of the bitmask queue and of the scale factor queue


@dataclass(frozen=True)
class Crossbar:
    """One that was laid out: mm², pJ of a cycle in which all ports work, wires from side to side."""

    area: float
    energy: float
    wires: int
    node: float
    voltage: float


# Cakir, Ho, Lexau and Mai, ISLPED 2015: layout in 40 nm, 0.9 V, 16 × 16 ports of 64 bits.
CROSSBAR = Crossbar(area=0.94, energy=110.0, wires=16 * 64, node=40, voltage=0.9)


def area(engine: Deca = PUBLISHED) -> dict[str, float]:
    """mm² at 7 nm of one element, by part. Multipliers are of FP16, no smaller than of BF16."""
    memories = 2 * LOADERS * cacti("queue").area_at(NODE) + LOADERS * cacti("load_unit").area_at(NODE)
    registers = LOADERS * (2 * QUEUE_BITS + LINE_BITS) * _logic("flip_flop")  # two small queues, the head of the SQQ
    stages = 2 * engine.width * VALUE_BITS * _logic("flip_flop")  # registers SD and DD
    crossbar = CROSSBAR.area * _crossings(engine) * area_scale(NODE) / area_scale(CROSSBAR.node)
    adders = 2 * engine.width * ADDER_BITS * _logic("add")
    multipliers = engine.width * _logic("fp16_multiply")
    return {
        QUEUES: memories + registers,
        TABLES: engine.tables * cacti("table").area_at(NODE),
        REST: stages + crossbar + adders + multipliers,
    }


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


def _logic(name: str) -> float:
    """mm² at 7 nm."""
    return PARTS[name].area * 1e-6 * area_scale(NODE)


def _switch(name: str) -> float:
    """pJ at 7 nm."""
    return PARTS[name].energy * energy_scale(NODE, VOLTAGE)
