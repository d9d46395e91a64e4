"""What registers become in a library: its smallest flip-flop, and its smallest clock gate if it has one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .liberty import ClockGate, Group, clock_gate_of, cut, parse

_FLIP_FLOP = re.compile(r"\bff\s*\(")
_STATE = re.compile(r"\bff\s*\(|\bclock_gating_integrated_cell\b")
_NAME = re.compile(r"\w[\w.$]*")
_CLOCK_GATE = re.compile(r"\bclock_gating_integrated_cell\b")


@dataclass(frozen=True)
class StateCells:
    """`unused`: flip-flops that are larger than the smallest. `clock_gate`: (cell, its pins)."""

    unused: tuple[str, ...] = ()
    clock_gate: tuple[str, ClockGate] | None = None


def state_cells(texts: Iterable[str]) -> StateCells:
    """Of the files of one library. Names become words of Yosys' commands, so others than plain ones are refused."""
    cells = [cell for text in texts if _STATE.search(text) for cell in cut(text)[1].values()]
    flip_flops = [group for group in map(parse, filter(_FLIP_FLOP.search, cells)) if _is_plain(group)]
    gates = [group for group in map(parse, filter(_CLOCK_GATE.search, cells)) if _pins(group)]
    least = min(map(_area, flip_flops), default=0.0)
    unused = tuple(group.arguments for group in flip_flops if _area(group) > least)
    gate = min(gates, key=_area, default=None)
    pins = _pins(gate) if gate else None
    for name in (*unused, *((gate.arguments, *vars(pins).values()) if gate and pins else ())):
        if name and not _NAME.fullmatch(name):
            raise ValueError(f"a cell or pin is called {name!r}; names have letters, digits, _, . and $ alone")
    return StateCells(unused, (gate.arguments, pins) if gate and pins else None)


def _area(cell: Group) -> float:
    return cell.number("area")


def _is_plain(cell: Group) -> bool:
    """Takes one input at the rising edge, and nothing else changes it."""
    inputs = {pin.arguments for pin in cell.all("pin") if pin.attributes.get("direction") == "input"}
    return any(
        state.attributes.get("next_state", "").strip("!'() ") in inputs
        and not state.attributes.get("clocked_on", "!").startswith("!")
        and not {"clear", "preset"} & state.attributes.keys()
        for state in cell.all("ff")
    )


def _pins(cell: Group) -> ClockGate | None:
    """Of a clock gate that passes rising edges."""
    try:
        return clock_gate_of(cell)
    except ValueError:
        return None
