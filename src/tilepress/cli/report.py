"""`tilepress report`: records as one page to look at."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._extras import need_lab
from .._files import write_text
from .output import Json, print_records, progress
from .stdin import NAME, is_stdin, read_stdin

Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the results to this HTML page.")]

if TYPE_CHECKING:
    from ..records import Record
    from ..report import Section


def report(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files with what commands print with --json, folders of them, or - for standard input.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; report.html if nothing else is to be written.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this Markdown file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write each table to a CSV file in this folder.")] = None,
    title: Annotated[str, typer.Option(help="The page's heading.")] = "Tilepress report",
    json: Json = False,
) -> None:
    """Make one HTML page of records: tables, plots, the papers' values beside ours, and an explorer to play with.

    The page needs no network and nothing beside it. A section is there where records hold its figures; without records
    there is the explorer alone. --json prints the records that were read, all of them together.

    Example: tilepress report benchmarks/results --html report.html
    """
    from ..report import markdown_report, sections, write_csv

    given = _given(records or [])
    with progress(json) as bar:
        bar.add_task("making the report", total=None)
        made = sections(given)
        page = html or (None if markdown or csv or json else Path("report.html"))
        if page:
            write_text(page, _render(title, given, made))
        if markdown:
            write_text(markdown, markdown_report(title, made))
        files = write_csv(csv, made) if csv else []
    if json:
        print_records(given)
        return
    for path in [*(one for one in (page, markdown) if one), *files]:
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def _given(paths: Sequence[Path]) -> "list[Record]":
    """What is there twice counts once."""
    from ..report import read_records
    from ..report.reading import parse_records

    parts = [parse_records(read_stdin("records"), NAME) if is_stdin(path) else read_records([path]) for path in paths]
    return list(dict.fromkeys(one for part in parts for one in part))


def check_page(path: Path | None, command: str) -> None:
    """Before a command's work: the page that it is to write at the end needs the lab extra."""
    if path is not None:
        need_lab(f"`tilepress {command} --html`")


def write_page(path: Path | None, title: str, records: "Sequence[Record]", *, with_explorer: bool = True) -> None:
    """A command's records as a page of their own, if there is a path for it; nothing of it is folded away."""
    if path is not None:
        from ..report import sections

        made = [replace(one, open=len(one.blocks)) for one in sections(records)]
        write_text(path, _render(title, records, made, with_explorer))


def _render(title: str, records: "Sequence[Record]", made: "Sequence[Section]", with_explorer: bool = True) -> str:
    from ..report import render_page

    machines = len({one.machine for one in records})
    subtitle = f"{len(records)} records of {machines} {'machine' if machines == 1 else 'machines'}"
    command = " ".join(["tilepress", *sys.argv[1:]])
    return render_page(title, subtitle, made, command, records, with_explorer=with_explorer)
