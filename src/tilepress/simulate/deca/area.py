"""Area and power of a processing element, from its structures (table 3) and constants of other technologies, scaled."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...roofsurface import Deca

PUBLISHED = Deca()
QUEUES, TABLES, REST = "queues and output registers", "look-up tables", "rest"

# Stillmaker and Baas 2017, "Scaling equations for the accurate prediction of CMOS device performance": area factors,
# and a·V² + b·V + c for the energy of a switch.
AREA_45_TO_7 = 0.059
AREA_22_TO_7 = 0.28  # theirs from 20 nm, the node nearest to CACTI's 22 nm
ENERGY_45 = (1.018, -0.3107, 0.1539)
ENERGY_7 = (0.1776, -0.09097, 0.02447)
VOLTAGE_45, VOLTAGE_7 = 0.9, 0.7  # Horowitz' 45 nm figures are at 0.9 V; 0.7 V is Stillmaker and Baas' nominal at 7 nm


@dataclass(frozen=True)
class Constant:
    value: float
    unit: str
    source: str


HOROWITZ = "Horowitz, ISSCC 2014, 45 nm, 0.9 V"
CACTI = "CACTI 7, tech_params/22nm.dat of HewlettPackard/cacti"
NANGATE = "Nangate 45 nm Open Cell Library"
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
    "flip_flop": Constant(4.522e-6, "mm2", f"{NANGATE}, DFF_X1"),
    "xor": Constant(1.596e-6, "mm2", f"{NANGATE}, XOR2_X1: compares a bit of a content-addressed entry"),
    "multiplexer": Constant(1.862e-6, "mm2", f"{NANGATE}, MUX2_X1: a crossing point of one bit"),
    "adder_32": Constant(137e-6, "mm2", HOROWITZ),
    "multiplier_fp16": Constant(1640e-6, "mm2", f"{HOROWITZ}; of FP16, no smaller than of BF16"),
    "cache_8kb_64b": Constant(10.0, "pJ", f"{HOROWITZ}; of another size, by the square root of its capacity"),
    "add_32": Constant(0.1, "pJ", HOROWITZ),
    "multiply_fp16": Constant(1.1, "pJ", HOROWITZ),
}


def area(engine: Deca = PUBLISHED) -> dict[str, float]:
    """mm² at 7 nm of one element, by part."""
    arrays = 4 * _of("sram_2kb_1r1w") * AREA_22_TO_7  # two queues of codes, two output registers
    loaders = 2 * 256 * 8 * (_of("flip_flop") + _of("xor"))
    small_queues = 2 * (64 + 64) * 8 * _of("flip_flop")
    stages = 2 * engine.width * 16 * _of("flip_flop")  # registers SD and DD
    crossbar = engine.width * (engine.width + 1) / 2 * 16 * _of("multiplexer")
    adders = 2 * engine.width * _of("adder_32")
    multipliers = engine.width * _of("multiplier_fp16")
    return {
        QUEUES: arrays + (loaders + small_queues) * AREA_45_TO_7,
        TABLES: engine.tables * _of("sram_512b_4r1w") * AREA_22_TO_7,
        REST: (stages + crossbar + adders + multipliers) * AREA_45_TO_7,
    }


def power(engine: Deca = PUBLISHED, frequency: float = 2.5e9) -> dict[str, float]:
    """Watts at 7 nm of one element that is never idle, by part. Leakage, and what the loaders' search and the registers
    take, are not in it."""
    line = engine.width * 16 / 64  # words of 64 bits that a vector operation reads or writes
    queues = 4 * line * _access(2048, ports=2)  # codes in and out, a tile in and out
    tables = engine.width * _access(512, ports=5) * 16 / 64
    rest = 2 * engine.width * _of("add_32") + engine.width * _of("multiply_fp16")
    scale = energy_scale() * 1e-12 * frequency
    return {QUEUES: queues * scale, TABLES: tables * scale, REST: rest * scale}


def energy_scale() -> float:
    """Energy of a switch at 7 nm over that at 45 nm."""
    return _energy(ENERGY_7, VOLTAGE_7) / _energy(ENERGY_45, VOLTAGE_45)


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: value / total for name, value in parts.items()}


def _access(size: int, ports: int) -> float:
    """pJ at 45 nm of 64 bits from an array of `size` bytes: wires are what is charged, so it grows as the array's side
    does, with its capacity and with the ports of its cells."""
    return _of("cache_8kb_64b") * math.sqrt(size / 8192 * _cell(ports) / _cell(1))


def _cell(ports: int) -> float:
    """F² of an SRAM cell, as CACTI has it."""
    more = 2 * _of("wire_pitch") * (ports - 1)
    width = math.sqrt(_of("cell") / _of("cell_aspect"))
    return (width + more) * (width * _of("cell_aspect") + more)


def _of(name: str) -> float:
    return CONSTANTS[name].value


def _energy(polynomial: tuple[float, float, float], voltage: float) -> float:
    a, b, c = polynomial
    return a * voltage**2 + b * voltage + c
