"""What `tilepress reproduce` shows people: items, values, and how they stand."""

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..evidence import KINDS
from .output import figure_text, print_table

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..paper import Item, Keeping
    from ..paper.sensitivity import Moved
    from ..records import Reproduction, Tally, Value

LIST_WIDTH = 100  # columns, where no terminal says how many it has
MINUTE = 60  # s
BRIEFLY = {"measured here": "measured", "same study, smaller model": "smaller model"}  # kinds, where room is scarce


def print_list(chosen: "Sequence[Item]", saved: "Keeping") -> None:
    """A table for each paper, with held-out cells before and apart from all others."""
    for paper in dict.fromkeys(item.paper for item in chosen):
        items = [item for item in chosen if item.paper == paper]
        rows = [[item.name, item.title, BRIEFLY.get(item.kind, item.kind), *_standing(item, saved)] for item in items]
        title = f"{paper}: {len(items)} items, {_seconds_text(sum(item.seconds for item in items))}"
        columns = ["item", "what", "how", "held-out", "other cells", "time"]
        print_table(title, columns, rows, words=5, width=LIST_WIDTH)
    _print_totals(chosen, saved)
    print("Held-out cells are predictions: nothing was fitted to them or chosen with them in sight, and")
    print("they follow from no other cell or input; `simulate deca --fitted` and `simulate array --fitted`")
    print("list what was fitted and chosen.")
    print("`tilepress reproduce --list PAPER/ITEM` shows its options and what the paper prints.")
    print("Times are estimates for a run of all items on two Neoverse-N1 cores with nothing else to do.")


def _standing(item: "Item", saved: "Keeping") -> list[str]:
    """Held-out cells, all others, and the time that it takes."""
    records = saved.records(item)
    if records is None:
        counts = Counter(_evidence(item))
        others = [f"{counts[kind]} {kind}" for kind in KINDS[1:] if counts[kind]]
        return [str(counts[KINDS[0]] or "none"), ", ".join(others) or "none", _seconds_text(item.seconds)]
    held_out, *others = _tallies(records)
    return [held_out.partition(" ")[2], "; ".join(others) or "none", _seconds_text(item.seconds)]


def _print_totals(chosen: "Sequence[Item]", saved: "Keeping") -> None:
    run = [item for item in chosen if saved.records(item) is not None]
    records = [one for item in run for one in saved.records(item) or []]
    if run:
        print(f"Of {len(run)} items that were run: {summary(records)}.")


def _evidence(item: "Item") -> "list[Evidence]":
    from ..paper import evidence_of

    return [evidence_of(item, cell) for cell in item.published]


def print_details(item: "Item", saved: "Keeping") -> None:
    """All that is known of an item before it is run."""
    cells = zip(item.published, _evidence(item), strict=True)
    rows = [
        [one.row, one.column, one.unit, one.place, kind, _published(one.relation, one.value)] for one, kind in cells
    ]
    title = f"{item.name}: {item.title} ({item.kind}, {_seconds_text(item.seconds)})"
    if rows:
        print_table(title, ["row", "column", "unit", "place", "evidence", "paper"], rows, words=5, width=LIST_WIDTH)
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
        [one.row, one.column, one.unit, _text(one.paper), _text(one.value), _deviation(one), one.state or "",
         one.evidence or "", one.note]
        for one in records
    ]  # fmt: skip
    columns = ["row", "column", "unit", "paper", "ours", "deviation", "state", "evidence", "note"]
    took = "" if seconds is None else f", in {_seconds_text(seconds)}"
    print(f"{item.name}: {summary(records)}{took}")
    print_table(f"{item.title} ({item.kind})", columns, rows, words=3)
    for note in item.notes:
        print(f"  {note}")
    if item.notes:
        print()


def print_sensitivity(item: "Item", moved: "Sequence[Moved]") -> None:
    """For each constant that moves a cell, how many, held-out ones first, and the one that moves most."""
    from ..paper import fitted_constants

    rows = []
    for name in dict.fromkeys(one.constant for one in moved):
        here = [one for one in moved if one.constant == name]
        held_out = [one for one in here if one.record.evidence == KINDS[0]]
        most = max(held_out or here, key=lambda one: abs(one.change))
        cell = f"{most.record.row}; {most.record.column}"
        fitted_to = ", ".join(dict.fromkeys(cells.item for cells in fitted_constants()[name].cells))
        counts = [str(len(held_out)), str(len(here) - len(held_out))]
        rows.append([name, fitted_to, cell, f"{100 * most.change:+.1f} %", *counts])
    columns = ["constant, 10 % larger", "fitted to", "moves most", "by", "held-out cells", "other cells"]
    print_table(f"{item.name}: what it rests on", columns, rows, words=3)


def summary(records: "Sequence[Reproduction] | None") -> str:
    """Held-out cells first and alone, then the others by their evidence, and the largest deviation of all."""
    if records is None:
        return "not run"
    if not any(one.state for one in records):
        return "no value to compare with"
    deviating = [one for one in records if one.state == "deviates" and one.deviation]
    furthest = max(deviating, key=_relative_deviation, default=None)
    largest = [f"furthest by {_deviation(furthest)}"] if furthest else []
    return "; ".join([*_tallies(records), *largest])


def _tallies(records: "Sequence[Reproduction]") -> list[str]:
    """A text for each kind of evidence, held-out first."""
    from ..records import tally

    return [f"{kind} {_counts(one)}" for kind, one in tally(records).items()]


def _counts(tally: "Tally") -> str:
    parts = [str(tally)] if tally.compared else []
    parts += [f"{tally.impossible} not possible here"] if tally.impossible else []
    return ", ".join(parts) or "none"


def _relative_deviation(record: "Reproduction") -> float:
    return abs(record.deviation or 0) / (100 if record.unit == "%" else 1)


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE else f"{seconds / MINUTE:.0f} min"


def _published(relation: str, value: "Value") -> str:
    return _text(value) if relation == "=" else f"{relation} {_text(value)}"


def _text(value: "Value") -> str:
    return "" if value is None else figure_text(value)


def _deviation(record: "Reproduction") -> str:
    if record.deviation is None:
        return ""
    return f"{record.deviation:+.1f} points" if record.unit == "%" else f"{100 * record.deviation:+.1f} %"
