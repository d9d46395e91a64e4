"""What a report is made of, before it is a page, Markdown or CSV: sections of tables and plots, all of records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._builds import mark
from ..records import Record, Reproduction, Value


@dataclass(frozen=True)
class Sources:
    """Where figures come from, each once: how they were had, where, and the commands that give them again. `builds`:
    the older builds that gave those which were measured."""

    origins: Sequence[str] = ()
    machines: Sequence[str] = ()
    commands: Sequence[str] = ()
    builds: Sequence[str] = ()

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Sources":
        given = list(records)
        return cls(
            tuple(dict.fromkeys(one.origin for one in given)),
            tuple(dict.fromkeys(one.machine for one in given)),
            tuple(dict.fromkeys(one.command for one in given)),
            tuple(dict.fromkeys(filter(None, map(build, given)))),
        )


def build(record: Record) -> str:
    """The older build that a measured figure is of; "" of others."""
    return mark(record.version) if record.origin == "measured" else ""


@dataclass(frozen=True)
class Estimate:
    """A figure and its error, as one cell shows them."""

    value: Value
    error: float


Cell = Value | Estimate


@dataclass(frozen=True)
class Table:
    """The first `words` columns are words, the others figures, with units in their headings. A `closed` one is opened
    by a click."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    sources: Sources
    words: int = 1
    note: str = ""
    closed: bool = False


@dataclass(frozen=True)
class Plot:
    """Traces and layout as charts.js takes them; the page's theme gives the colours."""

    title: str
    traces: Sequence[Mapping[str, Any]]
    sources: Sources
    layout: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Surface:
    """A Roof-Surface with its bounding regions: `rates` by domain, and kernels as points."""

    title: str
    rates: Mapping[str, float]
    flops_per_operation: float
    points: Sequence[Mapping[str, Any]]
    sources: Sources


@dataclass(frozen=True)
class Card:
    """One figure to begin with, and what it is of."""

    label: str
    figure: str
    detail: str


@dataclass(frozen=True)
class Cards:
    title: str
    cards: Sequence[Card]
    sources: Sources


@dataclass(frozen=True)
class Comparison:
    """The papers' values beside ours, to be filtered; never both in one cell."""

    title: str
    records: Sequence[Reproduction]
    sources: Sources


LARGE = 1e6  # from here on with a prefix
PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6))
Block = Table | Plot | Surface | Cards | Comparison


@dataclass(frozen=True)
class Section:
    """Of its blocks the first `open` are open at first."""

    key: str
    title: str
    about: str
    blocks: Sequence[Block]
    open: int = 1


def text(cell: Cell) -> str:
    """As a reader sees it; four digits are enough."""
    if isinstance(cell, Estimate):
        return f"{text(cell.value)} ± {cell.error:.2g}"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int | float) and abs(cell) >= LARGE:
        prefix, size = next((name, size) for name, size in PREFIXES if abs(cell) >= size)
        return f"{cell / size:.4g} {prefix}"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 1000 else f"{cell:.0f}"
    return "" if cell is None else str(cell)


def unit_text(unit: str) -> str:
    return {"x": "×", "us": "µs", "mm2": "mm²", "um2": "µm²"}.get(unit, unit)


def raw(cell: Cell) -> Value:
    """To sort by, and for other programs."""
    return cell.value if isinstance(cell, Estimate) else cell


def number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
