"""What is drawn as boxes besides wires: ports, registers, memories and closed submodules of a netlist."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..synthesis import MEMORY
from .contents import holdings
from .naming import Places, SignalNames, families, plain
from .netlist import Cell, Modules, Netlist, Nets, Place

BITS = ""
CLOCKED = ("clk", "rst")


@dataclass(frozen=True, order=True)
class Key:
    """Of a box. `kind`: input, output, register, memory, wire or part; `place`: where it is drawn; `name`: of one that
    stands for it, none of single bits, which are one box for all of a kind and place."""

    kind: str
    place: Place
    name: str


@dataclass(frozen=True)
class Element:
    """One of those that make the box `key`, of which `size` are alike; `detail`: what is said of it besides its name.
    By port, nets that come out, that go in, and that only choose or enable. `counts`: whether operators before it are
    counted: not those of an instance that is drawn by another."""

    key: Key
    label: str
    size: int = 1
    detail: str = ""
    outputs: Mapping[str, Nets] = field(default_factory=dict)
    inputs: Mapping[str, Nets] = field(default_factory=dict)
    enables: Mapping[str, Nets] = field(default_factory=dict)
    counts: bool = True


def elements_of(netlist: Netlist, places: Places, modules: Modules) -> Iterator[Element]:
    names = SignalNames(netlist)
    yield from _ports(netlist, names)
    yield from _registers(netlist, places, names)
    for cell in netlist.cells:
        if cell.type == MEMORY:
            yield _memory(cell, places)
        elif cell.is_part:
            yield _part(cell, places, names, modules)


def _ports(netlist: Netlist, names: SignalNames) -> Iterator[Element]:
    """A stream is one box, and so are all single bits of a side. A stream's `ready`, which goes against it, is none."""
    sides = {"input": netlist.inputs, "output": netlist.outputs}
    ports = [(side, name, nets) for side, named in sides.items() for name, nets in named.items() if name not in CLOCKED]
    streams = {name.removesuffix("payload"): name for _, name, _ in ports if name.endswith("_payload")}
    shape = {name: names.shape((), name, len(nets)) for _, name, nets in ports}
    stem = {name: name.removesuffix("payload").rstrip("_") for _, name, _ in ports}
    found = families((name, stem[name], (side, len(nets))) for side, name, nets in ports if len(nets) > 1)
    for side, name, nets in ports:
        prefix, _, last = name.rpartition("_")
        if f"{prefix}_" in streams and last == "ready":
            continue
        ends: dict[str, Any] = {"outputs" if side == "input" else "inputs": {name: nets}}
        if (family := found.get(streams.get(f"{prefix}_", name))) is None:
            yield Element(Key(side, (), BITS), name, **ends)
        else:
            yield Element(Key(side, (), family.first), family.label, family.size, shape[family.first], **ends)


def _registers(netlist: Netlist, places: Places, names: SignalNames) -> Iterator[Element]:
    """Those of one bit are one box in each module."""
    cells = [cell for cell in netlist.cells if cell.is_register]
    named = [names.of(cell.place, cell.outputs["Q"]) for cell in cells]
    same = [(cell.place, len(cell.outputs["Q"])) for cell in cells]
    found = families((index, *both) for index, both in enumerate(zip(named, same, strict=True)))
    for index, (cell, name) in enumerate(zip(cells, named, strict=True)):
        family, is_bit = found[index], len(cell.outputs["Q"]) == 1
        key = Key("register", places.drawn(cell.place), BITS if is_bit else named[family.first])
        yield Element(
            key,
            plain(name) if is_bit else family.label,
            1 if is_bit else family.size,
            "" if is_bit else names.shape(cell.place, name, same[index][1]),
            outputs={plain(name): cell.outputs["Q"]},
            inputs={plain(name): cell.inputs["D"]},
            enables={port: nets for port, nets in cell.inputs.items() if port not in ("CLK", "D")},
            counts=places.is_first(cell.place),
        )


def _memory(cell: Cell, places: Places) -> Element:
    place = (*cell.place, cell.name)
    words, width = (int(cell.parameters[name], 2) for name in ("SIZE", "WIDTH"))
    return _instance(
        "memory",
        place,
        places,
        detail=f"{words} × {width} bit",
        outputs={"data": cell.outputs["RD_DATA"]},
        inputs={"data": cell.inputs["WR_DATA"]},
        enables={"address": cell.inputs["RD_ADDR"] + cell.inputs["WR_ADDR"], "enable": cell.inputs["WR_EN"]},
    )


def _part(cell: Cell, places: Places, names: SignalNames, modules: Modules) -> Element:
    def drawn(pins: Mapping[str, Nets]) -> dict[str, Nets]:
        named: dict[str, Nets] = {}
        for port, nets in pins.items():
            if port not in CLOCKED and not port.endswith("__ready"):
                for name, some in names.of_port(cell.place, port, nets).items():
                    named[name] = named.get(name, ()) + some
        return named

    return _instance(
        "part",
        (*cell.place, cell.name),
        places,
        detail=holdings(modules, cell.type),
        outputs=drawn(cell.outputs),
        inputs=drawn(cell.inputs),
    )


def _instance(kind: str, place: Place, places: Places, **rest: Any) -> Element:
    family, drawn = places.family(place), places.drawn(place)
    return Element(Key(kind, drawn[:-1], drawn[-1]), family.label, family.size, counts=places.is_first(place), **rest)
