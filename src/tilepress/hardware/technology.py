"""What memories cost, and how areas and energies scale from one technology to another. What logic costs:
`synthesised`.

Constants are of 45 nm at 0.9 V, but for memories that CACTI was run for (`cacti.json`, by benchmarks/cacti). Scaling
follows Stillmaker and Baas 2017, "Scaling equations for the accurate prediction of CMOS device performance": area
factors, and a·V² + b·V + c for the energy of a switch. Nodes between theirs are interpolated on logarithmic axes.
"""

import bisect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BASE_NODE, BASE_VOLTAGE = 45, 0.9
CACTI = Path(__file__).parent / "cacti.json"

AREA_FROM_45: dict[float, float] = {45: 1.0, 32: 0.46, 20: 0.059 / 0.28, 16: 0.19, 7: 0.059}
ENERGY: dict[float, tuple[float, float, float]] = {
    45: (1.018, -0.3107, 0.1539),
    32: (0.8367, -0.4341, 0.1701),
    16: (0.2958, -0.1241, 0.03024),
    7: (0.1776, -0.09097, 0.02447),
}


@dataclass(frozen=True)
class Memory:
    """One memory by CACTI: mm², pJ of one access by its whole port, mW of leakage, ns; at `node` nm and `voltage`."""

    node: float
    voltage: float
    area: float
    read_energy: float
    write_energy: float
    leakage: float
    gate_leakage: float
    access_time: float
    search_energy: float = 0.0

    def area_at(self, node: float) -> float:
        return self.area * area_scale(node) / area_scale(self.node)

    def energy_at(self, energy: float, node: float, voltage: float) -> float:
        """pJ of an access, one of this memory's energies."""
        return energy * energy_scale(node, voltage) / energy_scale(self.node, self.voltage)

    def leakage_at(self, node: float, voltage: float) -> float:
        """mW, assumed to go with the width of gates, as the side of an area does, and with the voltage."""
        width = math.sqrt(area_scale(node) / area_scale(self.node))
        return (self.leakage + self.gate_leakage) * width * voltage / self.voltage


@cache
def cacti(name: str) -> Memory:
    """The memory of that name in `cacti.json`."""
    kept = json.loads(CACTI.read_text("utf-8"))
    return Memory(kept["node"], kept["voltage"], **kept["memories"][name])


CACHE_BYTES, CACHE_BITS, CACHE_ENERGY = 8192, 64, 10.0  # Horowitz: 10 pJ for 64 bits of an 8 KB cache


def area_scale(node: float) -> float:
    """Area at `node` nm over that at 45 nm."""
    return _between(node, {size: math.log(factor) for size, factor in AREA_FROM_45.items()})


def energy_scale(node: float, voltage: float) -> float:
    """Energy of a switch at `node` nm and `voltage` over that at 45 nm and 0.9 V."""
    known = {size: math.log(_switch(polynomial, voltage)) for size, polynomial in ENERGY.items()}
    return _between(node, known) / _switch(ENERGY[BASE_NODE], BASE_VOLTAGE)


def sram_energy(bank: float) -> float:
    """pJ a bit of a bank of `bank` bytes at 45 nm and 0.9 V; of other sizes, by the square root of their capacity."""
    return CACHE_ENERGY / CACHE_BITS * math.sqrt(bank / CACHE_BYTES)


def _switch(polynomial: tuple[float, float, float], voltage: float) -> float:
    a, b, c = polynomial
    return a * voltage**2 + b * voltage + c


def _between(node: float, logarithms: Mapping[float, float]) -> float:
    """Interpolated between the two known nodes around `node`."""
    known = sorted(logarithms)
    if not known[0] <= node <= known[-1]:
        raise ValueError(f"technologies are from {known[0]} to {known[-1]} nm, not {node:g} nm")
    place = min(max(bisect.bisect_left(known, node), 1), len(known) - 1)
    low, high = known[place - 1], known[place]
    share = math.log(node / low) / math.log(high / low)
    return math.exp(logarithms[low] + share * (logarithms[high] - logarithms[low]))
