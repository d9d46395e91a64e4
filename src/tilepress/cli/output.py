"""What subcommands share: options, records for machines, tables for people."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__
from ..records import Label, Origin, Record, Value, machine, to_json
from .ascii import is_utf8
from .completion import models
from .tables import output_width as output_width
from .tables import print_table as print_table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from ..evidence import Cells, Choice, Fitted

Model = Annotated[
    str,
    typer.Argument(autocompletion=models, help="A model's folder, a GGUF file, smollm2-135m, or a name on the hub."),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that comes with the model, with all your rights."),
]
TextOnly = Annotated[
    bool, typer.Option("--text-only", help="Leave out what is not the language model: a vision tower, say.")
]
Json = Annotated[bool, typer.Option("--json", help="Print an array of records, and nothing else, for machines.")]
WriteCard = Annotated[
    bool,
    typer.Option("--write-card", help="Keep the figures in the compressed folder, and show them on its model card."),
]
MOST_THREADS = max(64, 2 * (os.cpu_count() or 1))  # as native code has it; torch's runtime ends a process of too many
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_THREADS, help="Threads to use; as many as there are cores if not given."),
]
Ranks = Annotated[
    int,
    typer.Option(min=1, help="Processes that compute the model together, a part of every layer each: one a NUMA node."),
]


class Recorder:
    """Collects the figures of one command run on this machine. `labels` are those of all its figures, `origin` that of
    figures which have no other."""

    def __init__(self, origin: Origin = "measured", /, **labels: Label) -> None:
        self.records: list[Record] = []
        self._origin, self._labels = origin, labels
        self._command = " ".join(["tilepress", *sys.argv[1:]])
        self._version = __version__

    def add(
        self, metric: str, value: Value, unit: str = "", origin: Origin | None = None, /, **labels: Label | None
    ) -> None:
        """A label that is None is left out."""
        given = self._labels | {name: label for name, label in labels.items() if label is not None}
        origin = origin or self._origin
        record = Record(metric, given, value, unit, origin, machine(), self._command, version=self._version)
        self.records.append(record)

    def print_json(self) -> None:
        print_records(self.records)


def write_card(folder: "Path", records: Iterable[Record]) -> None:
    """Keep `records` in the compressed `folder`; on standard error, where its card was edited and stays as it is."""
    from ..models.kept_records import RECORDS, keep_records

    if not keep_records(folder, records):
        print(f"{folder}/README.md was edited, so the figures are in {RECORDS} alone", file=sys.stderr)


def print_records(records: Iterable[Record]) -> None:
    """As JSON, which loses nothing where standard output takes ASCII only."""
    text = to_json(records)
    print(text if is_utf8(sys.stdout) else "".join(one if one.isascii() else dumps(one)[1:-1] for one in text))


def metric_text(record: Record, known: Collection[str] = ()) -> str:
    """For people: the metric, and the labels that are not `known` from what stands around; numbers with their names."""
    labels = {name: label for name, label in record.labels.items() if name not in known}
    texts = [label if isinstance(label, str) else f"{name} {label}" for name, label in labels.items()]
    return ", ".join([record.metric.replace("_", " "), *texts])


def show_figures(recorder: Recorder, title: str, known: Collection[str], json: bool) -> None:
    """All records of a command as a table, whose title tells the `known` labels, or for machines."""
    if json:
        recorder.print_json()
        return
    rows = [[metric_text(one, known), figure_text(one.value), one.unit] for one in recorder.records]
    print_table(title, ["what", "value", "unit"], rows)


def show_declared(
    recorder: Recorder, simulator: str, fitted: "Mapping[str, Fitted]", choices: "Mapping[str, Choice]", json: bool
) -> None:
    """What of a simulator was fitted to which cells of the papers, and what was chosen with which in sight."""
    for key, one in fitted.items():
        recorder.add("fitted_parameter", one.value, one.unit, "model", simulator=simulator, parameter=key)
    if json:
        recorder.print_json()
        return
    rows = [[key, _cells(one.cells, one.why), f"{one.value:g}", one.unit] for key, one in fitted.items()]
    print_table("Fitted parameters", ["parameter", "fitted to", "value", "unit"], rows, words=2)
    chosen = [[key, one.what, _cells(one.cells)] for key, one in choices.items()]
    print_table("Choices", ["choice", "what", "with these cells in sight"], chosen, words=3)


def _cells(cells: "Sequence[Cells]", why: str = "") -> str:
    return "; ".join([*map(str, cells), *filter(None, [why])])


def figure_text(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def progress(quiet: bool = False) -> "Progress":
    """A progress bar with the time left, on standard error, where a terminal shows it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )


def hush_transformers() -> None:
    """No progress bars of theirs beside ours."""
    from transformers.utils import logging

    logging.disable_progress_bar()


@contextmanager
def hushed(quiet: bool = False) -> Iterator[None]:
    """Progress bars of other people's on standard error only where a terminal shows them."""
    if not quiet and sys.stderr.isatty():
        yield
    else:
        with redirect_stderr(StringIO()):
            yield
