"""What feeds what through logic: from a net back to the nets that it is computed of, bit by bit where that is known."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..synthesis import MEMORY
from .netlist import Cell, Nets, Place

BITWISE = {"$and", "$or", "$xor", "$xnor", "$not", "$pos"}
# What an operator is called in a drawing.
OPERATORS = {
    "$mul": "multiply",
    "$add": "add",
    "$sub": "subtract",
    "$neg": "negate",
    "$shift": "select",
    "$shiftx": "select",
    **dict.fromkeys(("$shl", "$shr", "$sshl", "$sshr"), "shift"),
    **dict.fromkeys(("$lt", "$le", "$gt", "$ge"), "compare"),
}
# Their one bit says which of others is taken; it is no part of a word.
TESTS = {
    *("$eq", "$ne", "$eqx", "$nex", "$lt", "$le", "$gt", "$ge", "$logic_not", "$logic_and", "$logic_or"),
    *("$reduce_and", "$reduce_or", "$reduce_bool", "$reduce_xor", "$reduce_xnor"),
}
Feeders = tuple[Iterable[int], Iterable[int]]  # nets that a value is made of; nets that choose it


@dataclass
class Cone:
    """Nets where the way back ends: of `words` a value is made, `choices` only say of which. `operators`: how many of
    each name are on the way; of those that choose, the ones that compare what they choose from."""

    words: set[int] = field(default_factory=set)
    choices: set[int] = field(default_factory=set)
    operators: Counter[str] = field(default_factory=Counter)


class Logic:
    """Of the cells that are neither registers nor memories nor submodules."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._driver = {
            net: (cell, index)
            for cell in cells
            if not (cell.is_part or cell.is_register or cell.type == MEMORY)
            for nets in cell.outputs.values()
            for index, net in enumerate(nets)
        }

    def place(self, net: int) -> Place | None:
        """Of the module whose logic drives it."""
        return self._driver[net][0].place if net in self._driver else None

    def cone(self, nets: Iterable[int], ends: Container[int], own: Iterable[int] = ()) -> Cone:
        """Of `nets`, back to nets that no logic drives or at which it `ends`, unless they are its `own`."""
        own = frozenset(own)
        words = self._walk(nets, ends, own)
        choices, chosen_by = _Walk(), words.choosing
        while chosen_by:
            walk = self._walk(chosen_by, ends, own, choices.seen)
            choices.ended |= walk.ended
            choices.operators |= walk.operators
            chosen_by = walk.choosing
        among = [cell for cell in choices.operators.values() if any(net in words.seen for net in _all(cell.inputs))]
        operators = Counter(OPERATORS[cell.type] for cell in [*words.operators.values(), *among])
        return Cone(words.ended, choices.ended - words.ended, operators)

    def _walk(
        self, nets: Iterable[int], ends: Container[int], own: Container[int], seen: set[int] | None = None
    ) -> "_Walk":
        walk = _Walk(set() if seen is None else seen)
        waiting = list(nets)
        while waiting:
            net = waiting.pop()
            if not net or net in walk.seen:
                continue
            walk.seen.add(net)
            if net not in self._driver or (net in ends and net not in own):
                walk.ended.add(net)
                continue
            cell, index = self._driver[net]
            if is_operator(cell):
                walk.operators[id(cell)] = cell
            words, choices = feeders(cell, index)
            waiting.extend(words)
            walk.choosing.extend(choices)
        return walk


@dataclass
class _Walk:
    """`seen`: all nets on the way, `ended` those at its ends, `choosing` those that choose; `operators` by identity."""

    seen: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    choosing: list[int] = field(default_factory=list)
    operators: dict[int, Cell] = field(default_factory=dict)


def is_operator(cell: Cell) -> bool:
    """Whether a drawing counts it: one with a constant counts up or makes an address."""
    operands = cell.inputs.values()
    return cell.type in OPERATORS and all(any(nets) for nets in operands) and max(map(len, operands)) > 1


def feeders(cell: Cell, index: int) -> Feeders:
    """Of output bit `index`."""
    pins = cell.inputs
    if cell.type in ("$mux", "$pmux"):
        width = len(pins["A"])
        return [pins["A"][index], *pins["B"][index::width]], pins["S"]
    if cell.type in BITWISE:
        return [nets[min(index, len(nets) - 1)] for nets in pins.values()], ()
    if cell.type in TESTS:
        return (), _all(pins)
    if OPERATORS.get(cell.type) == "select":
        return pins["A"], pins["B"]
    return _all(pins), ()


def _all(pins: Mapping[str, Nets]) -> Iterator[int]:
    return (net for nets in pins.values() for net in nets)
