"""`tilepress reproduce`: the papers' values beside ours."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Json, progress
from .reproduce_shown import print_details, print_item, print_list, summary

if TYPE_CHECKING:
    from ..paper import Item, Keeping
    from ..records import Reproduction

KEPT = Path("reproductions.json")  # of all items, in the folder where one is
EXPECTED = (ValueError, OSError, RuntimeError)  # errors whose text says what was wrong


def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[PAPER[/ITEM] | all]…", help="What to reproduce.")
    ] = None,
    list_items: Annotated[
        bool, typer.Option("--list", help="Show the items instead, with what is known; of PAPER/ITEM its options too.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of an item; --list PAPER/ITEM shows them."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(help=f"Keep records in this file, and run no item again that it holds; of all: {KEPT}."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write plots of what can be plotted to this HTML file.")] = None,
    json: Json = False,
) -> None:
    """Run the papers' experiments and show each value that they print, ours, and the deviation.

    A cell matches, deviates, or is not possible here. How near a match must be is part of the item. An item that fails
    is told, and the others go on. A run of all items, or one with --records, that was stopped goes on where it stopped;
    delete the file to start anew.

    Example: tilepress reproduce deca/table2
    """
    from ..paper import Keeping, find

    chosen, names = find(items or ["all"]), items or []
    kept = Keeping(records or (KEPT if "all" in names or not names else None))
    if list_items or not items:
        _list(chosen, kept, all("/" in name for name in names) and bool(names), json)
        return
    told = _options(set_ or [], chosen)
    options = {item.name: item.read_options(told) for item in chosen}
    try:
        failures = _run_all(chosen, options, told, kept, json)
    except KeyboardInterrupt:
        _say_what_is_kept(kept)
        raise
    if page:
        _write_page(page, chosen, kept)
    _finish(chosen, kept, failures, json)


def _run_all(
    chosen: "Sequence[Item]",
    options: Mapping[str, Mapping[str, Any]],
    told: Mapping[str, str],
    kept: "Keeping",
    json: bool,
) -> dict[str, Exception]:
    """Item → why it failed. What is finished is kept, whatever comes after it."""
    from ..paper import command_of

    failures: dict[str, Exception] = {}
    for place, item in enumerate(chosen, 1):
        command, start = command_of(item, told), None
        if not kept.is_finished(item, command):
            title = item.name if len(chosen) == 1 else f"{place} of {len(chosen)}, {item.name}"
            start = time.monotonic()
            try:
                kept.keep(item, _run(item, options[item.name], command, title, json))
            except Exception as error:  # whatever it is: the other items shall run
                failures[item.name] = error
                _say(f"{item.name} failed: {_reason(error)}")
                continue
        if not json:
            print_item(item, kept.records(item) or [], start and time.monotonic() - start)
    return failures


def _run(item: "Item", options: Mapping[str, Any], command: str, title: str, quiet: bool) -> "list[Reproduction]":
    from ..paper import run

    with progress(quiet) as bar:
        waiting = bar.add_task(title, total=None)

        def track(sequence: Sequence[Any], description: str) -> Iterable[Any]:
            bar.update(waiting, visible=False)
            return bar.track(sequence, description=f"{title}: {description}")

        return run(item, track, options, command)


def _options(texts: Sequence[str], chosen: "Sequence[Item]") -> dict[str, str]:
    """NAME=VALUE texts, each of which one of the items takes."""
    found = {}
    known = sorted({name for item in chosen for name in item.options})
    for text in texts:
        name, is_one, value = text.partition("=")
        if not is_one:
            raise ValueError(f"--set wants NAME=VALUE, windows=4 say, not {text!r}")
        if name not in known:
            raise ValueError(f"no item here has an option {name!r}; there are: {', '.join(known) or 'none'}")
        found[name] = value
    return found


def _list(chosen: "Sequence[Item]", kept: "Keeping", in_detail: bool, json: bool) -> None:
    if json:
        _print_json(one for item in chosen for one in kept.records(item) or [])
    elif in_detail:
        for item in chosen:
            print_details(item, kept)
    else:
        print_list(chosen, kept)


def _write_page(path: Path, chosen: "Sequence[Item]", kept: "Keeping") -> None:
    from ..report import item_charts, write_page

    found = [chart for item in chosen for chart in item_charts(f"{item.name}: {item.title}", kept.records(item) or [])]
    write_page(path, "Reproductions", found)


def _finish(chosen: "Sequence[Item]", kept: "Keeping", failures: Mapping[str, Exception], json: bool) -> None:
    records = [one for item in chosen if item.name not in failures for one in kept.records(item) or []]
    if json:
        _print_json(records)
    elif len(chosen) > 1:
        failed = f"; {len(failures)} failed: {', '.join(failures)}" if failures else ""
        print(f"{len(chosen)} items: {summary(records)}{failed}")
    if failures:
        if len(chosen) > 1 and kept.path is not None:
            _say_what_is_kept(kept)
        raise typer.Exit(1)


def _say_what_is_kept(kept: "Keeping") -> None:
    if kept.path is not None and kept.path.exists():
        print(f"Finished items are kept in {kept.path}; the same command goes on from there.", file=sys.stderr)


def _say(text: str) -> None:
    print(f"tilepress: error: {text}", file=sys.stderr)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, EXPECTED) and str(error) else f"{type(error).__name__}: {error}"


def _print_json(records: "Iterable[Reproduction]") -> None:
    from ..records import to_json

    print(to_json(records))
