"""Families of records: those of the same metrics and labels, and a table of each.

Some labels are words, and make the row; the metric makes the column, with the labels that are left. A figure's error or
standard deviation shares its cell.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..records import Label, Record
from .blocks import Cell, Estimate, Sources, Table, number, unit_text

ERRORS = ("standard_error", "standard_deviation")  # statistics that share the cell of their figure


@dataclass(frozen=True)
class Family:
    """Records of these `metrics`, with no other labels than those of `rows`, of `columns`, and `statistic`.

    `rows`: word → labels; a record has one of them at least, unless the word is `optional`. The word's text is the
    first one's value, or what `texts` makes of all. `headings`: of words and metrics, where they are not their own
    names. `command`: how those begin that give such records, where metric and labels alone do not tell. `by_command`:
    what different commands give has different rows.
    """

    title: str
    metrics: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    headings: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, Callable[[Mapping[str, Label]], str]] = field(default_factory=dict)
    command: str | tuple[str, ...] = ""
    by_command: bool = False

    def holds(self, record: Record) -> bool:
        labels = record.labels.keys()
        known = {"statistic", *self.columns, *(label for group in self.rows.values() for label in group)}
        needed = [group for word, group in self.rows.items() if word not in self.optional]
        is_whole = labels <= known and all(not labels.isdisjoint(group) for group in needed)
        return is_whole and record.metric in self.metrics and record.command.startswith(self.command)

    def words(self, record: Record) -> dict[str, str]:
        by = {"command": shortened(record.command)} if self.by_command else {}
        return by | {word: self._text(word, record.labels) for word in self.rows}

    def _text(self, word: str, labels: Mapping[str, Label]) -> str:
        if word in self.texts:
            return self.texts[word](labels)
        return next((label_text(labels[name]) for name in self.rows[word] if name in labels), "")

    def heading(self, word: str) -> str:
        return self.headings.get(word, word.replace("_", " "))


@dataclass(frozen=True)
class Figure:
    """A record of a family; `words` make its row."""

    words: Mapping[str, str]
    record: Record

    @property
    def metric(self) -> str:
        return self.record.metric

    @property
    def is_error(self) -> bool:
        return self.record.labels.get("statistic") in ERRORS

    def label(self, name: str) -> str:
        return str(self.record.labels.get(name, ""))


def read(family: Family, records: Iterable[Record]) -> list[Figure]:
    """The figures among `records` that belong to the family."""
    return [Figure(family.words(record), record) for record in records if family.holds(record)]


def shortened(command: str) -> str:
    return command.removeprefix("tilepress ").removesuffix(" --json")


def label_text(label: Label) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label)


def table(family: Family, figures: Iterable[Figure]) -> Table | None:
    """One row for what has the same words and machine; None where there is nothing."""
    shown = list(figures)
    if not shown:
        return None
    several = len({one.record.machine for one in shown}) > 1
    words = [name for name in shown[0].words if _tells(name, {one.words[name] for one in shown})]
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    columns: dict[str, None] = {}
    for one in sorted(shown, key=lambda figure: figure.is_error):
        key = (*([one.record.machine] if several else []), *(one.words[name] for name in words))
        column = _column(family, one)
        columns.setdefault(column)
        row = rows.setdefault(key, {})
        row[column] = _with_error(row.get(column), one) if one.is_error else one.record.value
    names = [*(["machine"] if several else []), *(family.heading(name) for name in words)]
    cells = [[*key, *(row.get(column) for column in columns)] for key, row in rows.items()]
    sources = Sources.of(one.record for one in shown)
    return Table(family.title, [*names, *columns], cells, sources, words=len(names))


def _tells(word: str, texts: set[str]) -> bool:
    """Whether it is worth a column; a command that is everywhere the same stands below the table."""
    return any(texts) and (word != "command" or len(texts) > 1)


def _column(family: Family, figure: Figure) -> str:
    """The metric, after labels that are texts and before those that are numbers; its unit."""
    record = figure.record
    heading, unit = family.heading(record.metric), unit_text(record.unit)
    labels = {name: record.labels[name] for name in family.columns if name in record.labels}
    if "peer" in labels:
        return f"{heading.removesuffix('speedup')}× {labels['peer']}"
    before = [label for label in labels.values() if isinstance(label, str)]
    after = [f"{name} {label_text(label)}" for name, label in labels.items() if not isinstance(label, str)]
    statistic = [] if figure.is_error else [figure.label("statistic")]
    heading = " ".join(filter(None, [*before, heading, *statistic, *after]))
    return f"{heading}, {unit}" if unit not in ("", "×") else heading


def _with_error(cell: Cell, figure: Figure) -> Cell:
    error = number(figure.record.value)
    if isinstance(cell, Estimate) or cell is None or error is None:
        return cell
    return Estimate(cell, error)
