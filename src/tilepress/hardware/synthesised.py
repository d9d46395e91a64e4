"""What the papers' units cost in standard cells: our RTL, synthesised (`synthesis.json`, by benchmarks/synth.py).

Cells are ASAP7's, 7.5 tracks, 0.7 V. Areas are in µm² of the process itself, not of its layout drawn four times as
large: its smallest inverter, 0.04374 µm², is three gate pitches of 54 nm wide and 7.5 wire pitches of 36 nm high (Clark
et al., "ASAP7: A 7-nm finFET predictive process design kit", Microelectronics Journal 53, 2016). Memories, wires, a
clock tree and cells sized for a clock are not in them. `technology` scales them to other nodes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .technology import area_scale, energy_scale

SYNTHESIS = Path(__file__).parent / "synthesis.json"
LIBRARY, NODE, VOLTAGE = "asap7", 7, 0.7
MM2 = 1e-6  # µm² to mm²


@dataclass(frozen=True)
class Cost:
    """Of one design: a unit with its parameters, as `tilepress rtl` takes them. `area`: µm² at 7 nm; `delay`: ps of the
    longest path; `memory_bits`: of memories, which are in neither; `energy`: case → pJ of one operation at 7 nm and
    0.7 V, on the data that records name, where it is known; `items`: how many products or values that operation has."""

    unit: str
    settings: Mapping[str, str]
    area: float
    delay: float
    memory_bits: int
    energy: Mapping[str, float] = field(default_factory=dict)
    items: Mapping[str, int] = field(default_factory=dict)

    def area_at(self, node: float) -> float:
        """mm²."""
        return self.area * MM2 * area_scale(node) / area_scale(NODE)

    def energy_at(self, case: str, node: float, voltage: float) -> float:
        """pJ of one operation."""
        if case not in self.energy:
            known = ", ".join(self.energy) or "none"
            raise ValueError(f"{self.unit}: the energy of {case!r} is not known; known are {known}")
        return self.energy[case] * energy_scale(node, voltage) / energy_scale(NODE, VOLTAGE)

    def item_energy_at(self, case: str, node: float, voltage: float) -> float:
        """pJ of one product or value."""
        return self.energy_at(case, node, voltage) / self.items[case]

    def has(self, settings: Mapping[str, object]) -> bool:
        return all(self.settings.get(name) == str(value) for name, value in settings.items())


def costs(unit: str) -> tuple[Cost, ...]:
    """Of all designs of a unit."""
    found = tuple(one for one in _all() if one.unit == unit)
    if not found:
        names = ", ".join(dict.fromkeys(one.unit for one in _all()))
        raise ValueError(f"no unit {unit!r} was synthesised; there are {names}")
    return found


def cost(unit: str, settings: Mapping[str, object] | None = None) -> Cost:
    """Of the one design with these settings; the others may be any, if there is no choice."""
    designs = costs(unit)
    found = [one for one in designs if one.has(settings or {})]
    if len(found) != 1:
        asked = ", ".join(f"{name}={value}" for name, value in (settings or {}).items()) or "no settings"
        told = "several designs have" if found else "no design has"
        raise ValueError(f"{unit}: {told} {asked}; there are {'; '.join(_varied(designs))}")
    return found[0]


def _varied(designs: tuple[Cost, ...]) -> list[str]:
    """Of each, the settings that tell it from others."""
    names = [name for name in designs[0].settings if len({one.settings[name] for one in designs}) > 1]
    return [" ".join(f"{name}={one.settings[name]}" for name in names) or "one design" for one in designs]


@cache
def _all() -> tuple[Cost, ...]:
    return tuple(Cost(**design) for design in json.loads(SYNTHESIS.read_text("utf-8")))
