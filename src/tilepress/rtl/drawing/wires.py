"""Wires of the source that are drawn: those that arithmetic makes. Others are part of the arrows."""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from .elements import Element, Key
from .logic import Logic
from .naming import Family, Places, families, natural, plain
from .netlist import Netlist, Nets, Place

WIRE = "wire"
Wire = tuple[Place, str, Nets]  # its nets that logic drives, less those of narrower wires


def wires_of(netlist: Netlist, places: Places, logic: Logic, sources: AbstractSet[int]) -> Iterator[Element]:
    """`sources`: nets at which other arrows begin."""
    wires = list(_claimed(netlist, logic))
    ends = sources | {net for _, _, nets in wires for net in nets}
    made = [wire for wire in wires if logic.cone(wire[2], ends, wire[2]).operators]
    found = families((index, wire[1], wire[0]) for index, wire in enumerate(made))
    widest: Counter[Family] = Counter()
    for index, family in found.items():
        widest[family] = max(widest[family], len(made[index][2]))
    for index, (place, name, nets) in enumerate(made):
        family = found[index]
        yield Element(
            Key(WIRE, places.drawn(place), made[family.first][1]),
            family.label,
            family.size,
            f"{widest[family]} bit",
            outputs={plain(name): nets},
            inputs={plain(name): nets},
            counts=places.is_first(place),
        )


def _claimed(netlist: Netlist, logic: Logic) -> Iterator[Wire]:
    """Narrow ones first, so that fields come before their structs; where a net has two names, that of its module."""
    taken: set[int] = set()
    named = [(place, name, nets) for place, name, nets in netlist.names if plain(name) and len(nets) > 1]
    for place, name, nets in sorted(named, key=lambda one: (len(one[2]), -len(one[0]), natural(one[1]), one[0])):
        own = tuple(net for net in nets if net not in taken and logic.place(net) == place)
        if own:
            taken |= {*own}
            yield place, name, own
