"""What `tilepress reproduce` shows people: items, values, and how they stand."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .output import figure_text, print_table

if TYPE_CHECKING:
    from ..paper import Item, Keeping
    from ..records import Reproduction, Value

LIST_WIDTH = 100  # columns, where no terminal says how many it has
MINUTE = 60  # s
BRIEFLY = {"measured here": "measured", "same study, smaller model": "smaller model"}  # kinds, where room is scarce


def print_list(chosen: "Sequence[Item]", saved: "Keeping") -> None:
    """A table for each paper."""
    for paper in dict.fromkeys(item.paper for item in chosen):
        items = [item for item in chosen if item.paper == paper]
        rows = [
            [item.name, item.title, BRIEFLY.get(item.kind, item.kind), summary(saved.records(item)), *_sizes(item)]
            for item in items
        ]
        title = f"{paper}: {len(items)} items, {_seconds_text(sum(item.seconds for item in items))}"
        columns = ["item", "what", "how", "state", "values", "time"]
        print_table(title, columns, rows, words=4, width=LIST_WIDTH)
    print("`tilepress reproduce --list PAPER/ITEM` shows its options and what the paper prints.")
    print("Times are estimates for a run of all items on two Neoverse-N1 cores with nothing else to do.")


def print_details(item: "Item", saved: "Keeping") -> None:
    """All that is known of an item before it is run."""
    rows = [[one.row, one.column, one.unit, one.place, _published(one.relation, one.value)] for one in item.published]
    title = f"{item.name}: {item.title} ({item.kind}, {_seconds_text(item.seconds)})"
    if rows:
        print_table(title, ["row", "column", "unit", "place", "paper"], rows, words=4, width=LIST_WIDTH)
    else:
        print(f"{title}\n\n  The paper's text has no value for it.")
    for note in item.notes:
        print(f"  {note}")
    print(f"  state: {summary(saved.records(item))}")
    for name, default in item.options.items():
        print(f"  --set {shlex.quote(f'{name}={default}')}")
    print()


def print_item(item: "Item", records: "Sequence[Reproduction]", seconds: float | None = None) -> None:
    """`seconds`: what it took, if it ran now."""
    rows = [
        [one.row, one.column, one.unit, _text(one.paper), _text(one.value), _deviation(one), one.state or "", one.note]
        for one in records
    ]
    columns = ["row", "column", "unit", "paper", "ours", "deviation", "state", "note"]
    print_table(f"{item.name}: {item.title} ({item.kind})", columns, rows, words=3)
    for note in item.notes:
        print(f"  {note}")
    took = "" if seconds is None else f", in {_seconds_text(seconds)}"
    print(f"  {summary(records)}{took}\n")


def summary(records: "Sequence[Reproduction] | None") -> str:
    """How many cells are in which state, and the largest deviation of those that deviate."""
    from ..paper import STATES

    if records is None:
        return "not run"
    by_state = {state: [one for one in records if one.state == state] for state in STATES}
    parts = [f"{len(cells)} {_verb(state, cells)}" for state, cells in by_state.items() if cells]
    return ", ".join(parts) or "no value to compare with"


def _sizes(item: "Item") -> list[str]:
    return [str(len(item.published)), _seconds_text(item.seconds)]


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE else f"{seconds / MINUTE:.0f} min"


def _verb(state: str, records: "Sequence[Reproduction]") -> str:
    if state != "deviates":
        return state
    furthest = max(records, key=lambda one: abs(one.deviation or 0) / (100 if one.unit == "%" else 1))
    return f"deviates (by up to {_deviation(furthest)})" if furthest.deviation else state


def _published(relation: str, value: "Value") -> str:
    return _text(value) if relation == "=" else f"{relation} {_text(value)}"


def _text(value: "Value") -> str:
    return "" if value is None else figure_text(value)


def _deviation(record: "Reproduction") -> str:
    if record.deviation is None:
        return ""
    return f"{record.deviation:+.1f} points" if record.unit == "%" else f"{100 * record.deviation:+.1f} %"
