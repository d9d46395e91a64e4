"""Synthesised units as reference tables that Accelergy and Timeloop take: area in µm², energy of an action in pJ."""

from typing import Any

import yaml

from .synthesised import Cost

VERSION = 0.4
_KNOWN = """\
# {design}: RTL of Tilepress in ASAP7's cells, 7 nm, 0.7 V.
# Area: µm², of cells: no wires, no clock tree, no sizing for a clock; the longest path is {delay:g} ps.
# {memory}
# {energy} Leakage: not known.
"""


def tables(cost: Cost, name: str) -> str:
    """The design as the component `name`, system.pe[0..255].mac say. There is an energy table where energies are
    known."""
    settings = " ".join(f"{key}={value}" for key, value in cost.settings.items())
    bits = cost.memory_bits
    comment = _KNOWN.format(
        design=f"{cost.unit} {settings}".rstrip(),
        delay=cost.delay,
        memory=f"Its memories, {bits} bits, are components of their own." if bits else "It has no memories.",
        energy="Energy: pJ, of cells." if cost.energy else "Energy: not known, so there is no ERT.",
    )
    content: dict[str, Any] = {"ART": _table({"name": name, "area": cost.area})}
    if cost.energy:
        actions = [{"name": action, "arguments": {}, "energy": energy} for action, energy in cost.energy.items()]
        content["ERT"] = _table({"name": name, "actions": actions})
    return comment + str(yaml.safe_dump(content, sort_keys=False))


def _table(component: dict[str, Any]) -> dict[str, Any]:
    return {"version": VERSION, "tables": [component]}
