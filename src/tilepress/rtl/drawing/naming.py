"""Which instances and signals a drawing shows as one, and what it calls them."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .netlist import Netlist, Nets, Place

MADE_UP = "\\"
_MADE_UP = re.compile(r"\\|port\$")  # begins names that are Amaranth's own: the source has no `name = Signal(…)`
_NUMBERS = re.compile(r"(_\d+)+$")
_AGAIN = re.compile(r"\$\d+")  # of a name that was given before
_ELEMENT = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Family:
    """What is drawn as one box: called `label`, of `size` members, for which `first` stands."""

    first: Any
    label: str
    size: int


def natural(name: str) -> tuple[int, str]:
    """Orders lane_2 before lane_10."""
    return len(name), name


def plain(name: str) -> str:
    """As the source has it: left.sign for left$17[3].sign, nothing for a name that is made up."""
    return "" if _MADE_UP.match(name) else _ELEMENT.sub("", _AGAIN.sub("", name)).strip("_")


def families(members: Iterable[tuple[Hashable, str, Hashable]]) -> dict[Any, Family]:
    """Of members, each with its name and what all of a family have the same. Numbered names make a family, a_0 and a_1;
    so do elements of an array, and three of one name: two may have it by accident."""
    alike: dict[Hashable, list[tuple[Any, str]]] = defaultdict(list)
    for member, name, same in members:
        alike[_NUMBERS.sub("", plain(name)) or name, same].append((member, name))
    found: dict[Any, Family] = {}
    for group in alike.values():
        group.sort(key=lambda one: natural(one[1]))
        if len(group) == 1 or _by_accident([name for _, name in group]):
            found |= {member: Family(member, plain(name), 1) for member, name in group}
        else:
            first, name = group[0]
            family = Family(first, _NUMBERS.sub("", plain(name)), len(group))
            found |= {member: family for member, _ in group}
    return found


def _by_accident(names: list[str]) -> bool:
    return len(names) == 2 and plain(names[0]) == plain(names[1]) and not any(map(_ELEMENT.search, names))


class Places:
    """Where instances are drawn: those of one family as its first."""

    def __init__(self, instances: Mapping[Place, str]) -> None:
        """`instances`: what those have the same that are alike."""
        self._families = families((place, place[-1], (place[:-1], same)) for place, same in instances.items())

    def family(self, place: Place) -> Family:
        return self._families[place]

    def drawn(self, place: Place) -> Place:
        return tuple(self._families[place[: level + 1]].first[-1] for level in range(len(place)))

    def is_first(self, place: Place) -> bool:
        """Whether it stands for its family, and so does what it is in."""
        return self.drawn(place) == place


class SignalNames:
    """What nets are called in the source."""

    def __init__(self, netlist: Netlist) -> None:
        self._ports = netlist.ports
        inner_names = {(place[:-1], plain(name), nets) for place, name, nets in netlist.names if place}
        self._inner = netlist.inner_ports | inner_names
        self._names: dict[tuple[Place, Nets], list[str]] = defaultdict(list)
        self._widths: dict[tuple[Place, str], int] = {}
        self._narrowest: dict[tuple[Place, int], str] = {}  # name of a net
        for place, name, nets in sorted(netlist.names, key=lambda one: (len(one[2]), natural(one[1]))):
            self._names[place, nets].append(name)
            self._widths[place, name] = len(nets)
            if plain(name) and "." not in name:
                self._narrowest |= {(place, net): plain(name) for net in nets if (place, net) not in self._narrowest}

    def of(self, place: Place, nets: Nets) -> str:
        """The name of a register's nets: that of the port if they are one, else their own. That of a part of another
        signal is none, and that of a submodule's signal only if there is no other."""
        names = [name for name in self._names[place, nets] if "." not in name]
        ports = [name for name in names if (place, name, nets) in self._ports]
        own = [name for name in names if (place, plain(name), nets) not in self._inner]
        return ports[0] if len(ports) == 1 else next(iter(own or names), MADE_UP)

    def of_port(self, place: Place, port: str, nets: Nets) -> dict[str, Nets]:
        """A submodule's port as the module around it calls it: in parts if it is joined of several signals."""
        names = [plain(name) for name in self._names[place, nets] if plain(name) and "." not in name]
        if port in names or not any(nets):
            return {port: nets}
        if names:
            return {names[0]: nets}
        parts: dict[str, list[int]] = defaultdict(list)
        for net in nets:
            parts[self._narrowest.get((place, net), "")].append(net)
        return {name: tuple(part) for name, part in parts.items()}

    def shape(self, place: Place, name: str, width: int) -> str:
        """Its bits; of an array how many elements there are, and the bits of each."""
        lengths: list[int] = []
        total = width
        while element := self._widths.get((place, f"{name}{'[0]' * (len(lengths) + 1)}")):
            lengths.append(total // element)
            total = element
        return " × ".join(map(str, [*(length for length in lengths if length > 1), total])) + " bit"
