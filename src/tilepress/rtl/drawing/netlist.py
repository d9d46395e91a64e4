"""A unit's netlist as Yosys gives it, with the submodules that a drawing opens put in the place of their cells.

Nets are single bits, numbered through all modules; 0 is any constant.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amaranth.lib.wiring import Component

from ..synthesis import MEMORY
from ..yosys import quoted, rtlil_of, run_yosys

Modules = Mapping[str, Any]
Nets = tuple[int, ...]
Place = tuple[str, ...]  # of an instance: names from the top's submodule down


@dataclass(frozen=True)
class Cell:
    """A register, memory, operator, or a submodule that stays closed, in the module at `place`."""

    place: Place
    name: str
    type: str
    inputs: Mapping[str, Nets]
    outputs: Mapping[str, Nets]
    parameters: Mapping[str, str]

    @property
    def is_part(self) -> bool:
        return not self.type.startswith("$")

    @property
    def is_register(self) -> bool:
        return "ff" in self.type and not self.is_part


@dataclass
class Netlist:
    """`inputs`, `outputs`: the top's ports. `names`: (place, name, its nets) of what has a name in the source.
    `ports`: likewise of ports of the module at that place; `inner_ports`: of those of its submodules, for which it has
    names of its own. `instances`: of submodules and memories, by place, what those have in common that are alike."""

    inputs: dict[str, Nets]
    outputs: dict[str, Nets]
    cells: list[Cell] = field(default_factory=list)
    names: list[tuple[Place, str, Nets]] = field(default_factory=list)
    ports: set[tuple[Place, str, Nets]] = field(default_factory=set)
    inner_ports: set[tuple[Place, str, Nets]] = field(default_factory=set)
    instances: dict[Place, str] = field(default_factory=dict)


def modules_of(component: Component, name: str) -> Modules:
    """Of a component that is to be called `name` and all in it: module name → ports, cells and names, after processes
    and memories have become cells."""
    with TemporaryDirectory() as folder:
        source, result = Path(folder) / "unit.il", Path(folder) / "unit.json"
        source.write_text(rtlil_of(component, name))
        commands = [f"hierarchy -check -top {name}", "proc", "opt_clean", "memory_collect"]
        run_yosys([f"read_rtlil {quoted(source)}", *commands, f"write_json {quoted(result)}"])
        modules: Modules = json.loads(result.read_text())["modules"]
        return modules


def part_of(modules: Modules, top: str, path: str) -> str:
    """The module of the instance at `path`, scaling.lane_0 say, under the module `top`."""
    module = top
    for name in filter(None, path.split(".")):
        inside = {key: cell["type"] for key, cell in _submodules(modules, module)}
        if name not in inside:
            there = ", ".join(inside) or "no parts"
            raise ValueError(f"{module} has no part {name!r}; it has {there}")
        module = inside[name]
    return module


def _submodules(modules: Modules, module: str) -> Iterator[tuple[str, Any]]:
    return ((name, cell) for name, cell in modules[module]["cells"].items() if cell["type"] in modules)


def levels_with_state(modules: Modules, module: str) -> int:
    """How many levels of submodules have registers or memories."""
    inside = [
        levels_with_state(modules, cell["type"])
        for _, cell in _submodules(modules, module)
        if _has_state(modules, cell["type"])
    ]
    return max((1 + levels for levels in inside), default=0)


def _has_state(modules: Modules, module: str) -> bool:
    return any(
        _has_state(modules, cell["type"]) if cell["type"] in modules else cell["type"] == MEMORY or "ff" in cell["type"]
        for cell in modules[module]["cells"].values()
    )


def flattened(modules: Modules, top: str, depth: int) -> Netlist:
    """`top` with its submodules opened, those in them too, and so on `depth` levels down."""
    fresh = count(1)
    ports = modules[top]["ports"]
    nets = {bit: next(fresh) for port in ports.values() for bit in port["bits"] if isinstance(bit, int)}
    sides: dict[str, dict[str, Nets]] = {"input": {}, "output": {}}
    for name, port in ports.items():
        sides[port["direction"]][name] = _translated(port["bits"], nets, fresh)
    netlist = Netlist(sides["input"], sides["output"])
    _put(netlist, modules, top, (), nets, depth, fresh)
    return netlist


def _put(
    netlist: Netlist,
    modules: Modules,
    module: str,
    place: Place,
    nets: dict[int, int],
    depth: int,
    fresh: Iterator[int],
) -> None:
    """The cells and names of `module`, which has the `nets` of its ports already."""
    for name, cell in modules[module]["cells"].items():
        pins = {port: _translated(bits, nets, fresh) for port, bits in cell["connections"].items()}
        if cell["type"] in modules or cell["type"] == MEMORY:
            netlist.instances[*place, name] = contents(modules, cell)
        if cell["type"] in modules:
            netlist.inner_ports |= {(place, port, there) for port, there in pins.items()}
        if depth and cell["type"] in modules:
            ends = _ends(netlist, modules[cell["type"]]["ports"], pins, (*place, name))
            _put(netlist, modules, cell["type"], (*place, name), ends, depth - 1, fresh)
        else:
            netlist.cells.append(_cell(place, name, cell, pins))
    for name, port in modules[module]["ports"].items():
        netlist.ports.add((place, name, _translated(port["bits"], nets, fresh)))
    for name, net in modules[module]["netnames"].items():
        if not net["hide_name"]:
            netlist.names.append((place, name, _translated(net["bits"], nets, fresh)))


def contents(modules: Modules, cell: Mapping[str, Any]) -> str:
    """Of a submodule or memory: equal for two that have the same ports and as many cells of each kind and width."""
    if cell["type"] not in modules:
        size = {name: int(cell["parameters"][name], 2) for name in ("WIDTH", "SIZE")}
        return f"{cell['type']} {size}"
    module = modules[cell["type"]]
    ports = sorted((name, port["direction"], len(port["bits"])) for name, port in module["ports"].items())
    return f"{ports} {sorted(Counter(_kind(modules, inner) for inner in module['cells'].values()).items())}"


def _kind(modules: Modules, cell: Mapping[str, Any]) -> str:
    if cell["type"] in modules or cell["type"] == MEMORY:
        return contents(modules, cell)
    return f"{cell['type']} {sorted(map(len, cell['connections'].values()))}"


def _ends(netlist: Netlist, ports: Mapping[str, Any], pins: Mapping[str, Nets], place: Place) -> dict[int, int]:
    """An opened module's own number of each net of its ports → the number outside. A net that leaves by two ports, or
    comes and leaves, has two numbers outside: a wire joins them."""
    ends: dict[int, int] = {}
    for port in sorted(pins, key=lambda port: ports[port]["direction"]):  # inputs first
        for bit, net in zip(ports[port]["bits"], pins[port], strict=True):
            if isinstance(bit, int) and ends.setdefault(bit, net) != net:
                netlist.cells.append(Cell(place, port, "$pos", {"A": (ends[bit],)}, {"Y": (net,)}, {}))
    return ends


def _cell(place: Place, name: str, cell: Mapping[str, Any], pins: Mapping[str, Nets]) -> Cell:
    def side(direction: str) -> dict[str, Nets]:
        return {port: nets for port, nets in pins.items() if cell["port_directions"][port] == direction}

    return Cell(place, name, cell["type"], side("input"), side("output"), cell["parameters"])


def _translated(bits: list[int | str], nets: dict[int, int], fresh: Iterator[int]) -> Nets:
    """Numbers of a module's own bits; constants are strings."""
    return tuple(0 if isinstance(bit, str) else nets.setdefault(bit, next(fresh)) for bit in bits)
