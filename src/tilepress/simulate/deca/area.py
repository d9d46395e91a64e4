"""Area and power of a processing element, from its structures (table 3) and constants of other technologies, scaled."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...hardware.technology import PARTS, area_scale, energy_scale, sram_energy
from ...roofsurface import Deca

PUBLISHED = Deca()
QUEUES, TABLES, REST = "queues and output registers", "look-up tables", "rest"
NODE, VOLTAGE = 7, 0.7  # nm; 0.7 V is Stillmaker and Baas' nominal there
AREA_45 = area_scale(NODE)
AREA_22 = area_scale(NODE) / area_scale(22)
CODE_BITS = 6  # the widest codes of which every port of a table looks one up in each cycle: section 6.1


@dataclass(frozen=True)
class Constant:
    value: float
    unit: str
    source: str


# Of SRAM and the crossbar; other logic has its constants in hardware/technology.py.
CACTI = "CACTI 7, tech_params/22nm.dat of HewlettPackard/cacti"
CAKIR = "Cakir, Ho, Lexau and Mai, ISLPED 2015, layout in 40 nm, 0.9 V: 16 × 16 ports of 64 bits"
CROSSBAR_NODE, CROSSBAR_VOLTAGE, CROSSBAR_WIRES = 40, 0.9, 16 * 64
CONSTANTS: dict[str, Constant] = {
    "sram_2kb_1r1w": Constant(0.0259, "mm2", "CACTI-class, 22 nm: 2 KB, one read and one write port of 64 bytes"),
    "sram_512b_4r1w": Constant(
        0.0042, "mm2", "CACTI-class, 22 nm: 512 bytes, four read ports of 2 bytes and a write port"
    ),
    "cell": Constant(146.0, "F2", f"{CACTI}, area_cell of SRAM"),
    "cell_aspect": Constant(1.46, "", f"{CACTI}, asp_ratio_cell of SRAM"),
    "wire_pitch": Constant(
        2.5, "F", f"{CACTI}, wire_pitch; a port beyond the first adds two to a cell's height and width"
    ),
    "crossbar": Constant(0.94, "mm2", CAKIR),
    "crossbar_energy": Constant(110.0, "pJ", f"{CAKIR}, all of them at work in a cycle"),
}


def area(engine: Deca = PUBLISHED) -> dict[str, float]:
    """mm² at 7 nm of one element, by part. Multipliers are of FP16, no smaller than of BF16."""
    arrays = 4 * _of("sram_2kb_1r1w") * AREA_22  # two queues of codes, two output registers
    loaders = 2 * 256 * 8 * (_logic("flip_flop") + _logic("gate"))  # a gate compares a bit of an entry
    small_queues = 2 * (64 + 64) * 8 * _logic("flip_flop")
    stages = 2 * engine.width * 16 * _logic("flip_flop")  # registers SD and DD
    crossbar = _of("crossbar") * _crossings(engine) * area_scale(NODE) / area_scale(CROSSBAR_NODE)
    adders = 2 * engine.width * 32 * _logic("add")
    multipliers = engine.width * _logic("fp16_multiply")
    return {
        QUEUES: arrays + loaders + small_queues,
        TABLES: engine.tables * _of("sram_512b_4r1w") * AREA_22,
        REST: stages + crossbar + adders + multipliers,
    }


def power(engine: Deca = PUBLISHED, frequency: float = 2.5e9) -> dict[str, float]:
    """Watts at 7 nm of one element that does a vector operation in every cycle, by part. Leakage, and what the loaders'
    search and the registers take, are not in it."""
    codes, values = engine.width * CODE_BITS / 64, engine.width * 16 / 64  # words of 64 bits an operation
    queues = 2 * (codes + values) * _access(2048, ports=2)  # codes in and out, a tile in and out
    tables = engine.width * _access(512, ports=5) * 16 / 64
    rest = 2 * engine.width * 32 * PARTS["add"].energy + engine.width * PARTS["fp16_multiply"].energy
    rest += _of("crossbar_energy") * _crossings(engine) / energy_scale(CROSSBAR_NODE, CROSSBAR_VOLTAGE)
    scale = energy_scale(NODE, VOLTAGE) * 1e-12 * frequency
    return {QUEUES: queues * scale, TABLES: tables * scale, REST: rest * scale}


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: value / total for name, value in parts.items()}


def _crossings(engine: Deca) -> float:
    """Of wires in the crossbar, over those of the one that was laid out: half of a square, since it is a triangle. So
    does its energy grow: with the wires, and with the length of each."""
    return (16 * engine.width / CROSSBAR_WIRES) ** 2 / 2


def _access(size: int, ports: int) -> float:
    """pJ at 45 nm of 64 bits from an array of `size` bytes: wires are what is charged, so it grows as the array's side
    does, with its capacity and with the ports of its cells."""
    return 64 * sram_energy(size) * math.sqrt(_cell(ports) / _cell(1))


def _cell(ports: int) -> float:
    """F² of an SRAM cell, as CACTI has it."""
    more = 2 * _of("wire_pitch") * (ports - 1)
    width = math.sqrt(_of("cell") / _of("cell_aspect"))
    return (width + more) * (width * _of("cell_aspect") + more)


def _of(name: str) -> float:
    return CONSTANTS[name].value


def _logic(name: str) -> float:
    """mm² at 7 nm."""
    return PARTS[name].area * 1e-6 * AREA_45
