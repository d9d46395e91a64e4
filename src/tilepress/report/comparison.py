"""The papers' values beside ours."""

from collections.abc import Mapping, Sequence

from ..records import Reproduction, State
from .blocks import Cell, Comparison, Section, Sources, Table

COLUMNS = ("item", "row", "column", "unit", "paper", "ours", "deviation", "state", "how", "note")
ORDER: tuple[State | None, ...] = ("deviates", "matches", "not possible here", None)  # what a reader asks for first
ALONE = "ours alone"  # where the paper prints nothing


def comparison_section(records: Sequence[Reproduction]) -> Section | None:
    about = "What the papers print, and ours beside it. A deviation is ours over theirs, less one; in figures of unit "
    about += "% it is ours less theirs, in points."
    ordered = sorted(records, key=lambda one: (ORDER.index(one.state), one.item.partition("/")[0]))
    block = Comparison("Paper and ours", ordered, Sources.of(ordered))
    return Section("papers", "The papers and ours", about, [block]) if records else None


def as_table(block: Comparison) -> Table:
    """For Markdown and CSV."""
    return Table(block.title, COLUMNS, [comparison_row(one) for one in block.records], block.sources, words=4)


def comparison_row(one: Reproduction) -> list[Cell]:
    state, origin = one.state or ALONE, one.origin
    return [one.item, one.row, one.column, one.unit, one.paper, one.value, one.deviation, state, origin, one.note]


def deviation_text(one: Reproduction) -> str:
    if one.deviation is None:
        return ""
    return f"{one.deviation:+.1f} points" if one.unit == "%" else f"{100 * one.deviation:+.1f} %"


def deviation_size(one: Reproduction) -> float | None:
    """In per cent or points, without its sign."""
    if one.deviation is None:
        return None
    return abs(one.deviation) if one.unit == "%" else 100 * abs(one.deviation)


def states(records: Sequence[Reproduction]) -> Mapping[str, int]:
    """State → how many cells are in it."""
    counts: dict[str, int] = {}
    for one in records:
        if one.state:
            counts[one.state] = counts.get(one.state, 0) + 1
    return counts
