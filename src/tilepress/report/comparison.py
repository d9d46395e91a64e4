"""The papers' values beside ours."""

from collections.abc import Sequence

from ..evidence import KINDS
from ..records import Reproduction, State
from .blocks import Cell, Comparison, Section, Sources, Table

COLUMNS = ("item", "row", "column", "unit", "paper", "ours", "deviation", "state", "evidence", "how", "note")
ORDER: tuple[State | None, ...] = ("deviates", "matches", "not possible here", None)  # what a reader asks for first
ALONE = "ours alone"  # where the paper prints nothing


def comparison_section(records: Sequence[Reproduction]) -> Section | None:
    about = "What the papers print, and ours beside it. A deviation is ours over theirs, less one; in figures of unit "
    about += "% it is ours less theirs, in points. A held-out cell is a prediction; a fitted one had a constant fitted "
    about += "to it, a chosen one was in sight when a structure or reading was chosen, a derived one follows from "
    about += "another cell or an input, a one-sided one is an inequality."
    ordered = sorted(records, key=lambda one: (_place(one), ORDER.index(one.state), one.item.partition("/")[0]))
    block = Comparison("Paper and ours", ordered, Sources.of(ordered))
    return Section("papers", "The papers and ours", about, [block]) if records else None


def as_table(block: Comparison) -> Table:
    """For Markdown and CSV."""
    return Table(block.title, COLUMNS, [comparison_row(one) for one in block.records], block.sources, words=4)


def comparison_row(one: Reproduction) -> list[Cell]:
    state, origin = one.state or ALONE, one.origin
    figures: list[Cell] = [one.item, one.row, one.column, one.unit, one.paper, one.value, one.deviation]
    return [*figures, state, one.evidence or "", origin, one.note]


def deviation_text(one: Reproduction) -> str:
    if one.deviation is None:
        return ""
    return f"{one.deviation:+.1f} points" if one.unit == "%" else f"{100 * one.deviation:+.1f} %"


def _place(one: Reproduction) -> int:
    """Held-out cells first."""
    return KINDS.index(one.evidence) if one.evidence else len(KINDS)
