"""Running an item: its experiment's values beside the paper's, as records."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import __version__
from ..records import Reproduction, State, Value, machine
from .evidence import evidence_of
from .item import ORIGINS, Item, NotPossible, Ours, Published, Track
from .tolerance import matches

STATES: tuple[State, ...] = ("matches", "deviates", "not possible here")  # from best to worst


def run(item: Item, track: Track, options: Mapping[str, Any], command: str) -> list[Reproduction]:
    """A record for every cell of the paper, in its order, then those that only we have. Where there are neither, since
    the experiment cannot be run, one that says so."""
    try:
        ours = {(one.row, one.column): one for one in item.run(track, options)}
        missing = "the experiment gives no value for it"
    except NotPossible as reason:
        ours, missing = {}, str(reason)
        if not item.published:
            nothing = _record(item, Ours("all", "all", None, "", missing), None, command)
            return [replace(nothing, state="not possible here")]
    records = []
    for theirs in item.published:
        absent = Ours(theirs.row, theirs.column, None, theirs.unit, missing)
        records.append(_record(item, ours.pop(theirs.cell, absent), theirs, command))
    return records + [_record(item, one, None, command) for one in ours.values()]


def worst(records: Sequence[Reproduction]) -> State | None:
    """The state of an item from those of its cells; None where the paper prints no value at all."""
    return max((one.state for one in records if one.state), key=STATES.index, default=None)


def deviation(ours: Value, theirs: Published) -> float | None:
    """As `Reproduction` defines it; None of words, of nothing, and from nothing."""
    if isinstance(ours, str) or ours is None or isinstance(theirs.value, str) or not theirs.value:
        return None
    return ours - theirs.value if theirs.unit == "%" else ours / theirs.value - 1


def state(ours: Value, theirs: Published) -> State:
    if ours is None:
        return "not possible here"
    if theirs.relation != "=" and not isinstance(ours, str) and not isinstance(theirs.value, str):
        holds = ours < theirs.value if theirs.relation == "<" else ours > theirs.value
        return "matches" if holds else "deviates"
    return "matches" if matches(ours, theirs.value, theirs.quantity) else "deviates"


def _record(item: Item, ours: Ours, theirs: Published | None, command: str) -> Reproduction:
    return Reproduction(
        metric="reproduction",
        labels={},
        value=ours.value,
        unit=theirs.unit if theirs else ours.unit,
        origin=ours.origin or ORIGINS[item.kind],
        machine=machine(),
        command=command,
        item=item.name,
        row=ours.row,
        column=ours.column,
        paper=_text(theirs) if theirs else None,
        deviation=deviation(ours.value, theirs) if theirs else None,
        state=state(ours.value, theirs) if theirs else None,
        evidence=evidence_of(item, theirs) if theirs else None,
        note=ours.note,
        version=__version__,
    )


def _text(theirs: Published) -> Value:
    return theirs.value if theirs.relation == "=" else f"{theirs.relation} {theirs.value:g}"
