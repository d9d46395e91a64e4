"""`tilepress reproduce`: the papers' values beside ours."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Json, Recorder, print_records, progress
from .report import write_page
from .reproduce_shown import print_details, print_item, print_list, print_sensitivity, summary
from .workers import RayAddress, WorkerThreads, chosen_executor

if TYPE_CHECKING:
    from ..cluster import Executor
    from ..paper import Item, Keeping
    from ..records import Reproduction

RECORDS = Path("reproductions.json")  # of all items, in the folder where one is


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
        typer.Option(help=f"Keep records in this file, and run no item again that it holds; of all: {RECORDS}."),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Show instead how far cells move with each fitted constant, 10 % larger."),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write plots and the comparison to this HTML page.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Items at once, each in a process; what is timed runs alone at the end.")
    ] = None,
    threads: WorkerThreads = None,
    ray: RayAddress = None,
    json: Json = False,
) -> None:
    """Run the papers' experiments and show each value that they print, ours, and the deviation.

    A cell matches, deviates, or is not possible here. Its evidence says what a match is worth: held-out cells are
    predictions and are counted first; others were fitted, chosen, derived or are one-sided. An item that fails is
    named, and the others go on. A run of all items, or one with --records, that was stopped goes on where it stopped;
    delete the file to start anew.

    Example: tilepress reproduce deca/table2
    """
    from ..paper import Keeping, find

    chosen, names = find(items or ["all"]), items or []
    saved = Keeping(records or (RECORDS if "all" in names or not names else None))
    if list_items or not items:
        _list(chosen, saved, all("/" in name for name in names) and bool(names), json)
        return
    given = _options(set_ or [], chosen)
    options = {item.name: item.read_options(given) for item in chosen}
    if sensitivity:
        _show_sensitivity(chosen, options, json)
        return
    try:
        with chosen_executor(workers, threads, ray) as executor:
            failures = _run_shared(executor, chosen, given, saved, json)
        failures |= _run_all([item for item in chosen if item.name not in failures], options, given, saved, json)
    except (Exception, KeyboardInterrupt):
        _say_what_is_saved(saved)
        raise
    shown = [one for item in chosen for one in saved.records(item) or []]
    write_page(html, "Reproductions", shown, with_explorer=False)
    _finish(chosen, saved, failures, json)


def _run_shared(
    executor: "Executor", chosen: "Sequence[Item]", given: Mapping[str, str], saved: "Keeping", json: bool
) -> dict[str, str]:
    """Of what workers do, item → why it failed; they do what is not timed, the longest first."""
    from ..cluster import InProcess
    from ..paper import command_of, task_of
    from ..records import Reproduction

    if isinstance(executor, InProcess):
        return {}
    left = [item for item in chosen if not item.is_timed and not saved.is_finished(item, command_of(item, given))]
    items = {task_of(item, given).name: item for item in left}
    tasks = [task_of(item, given) for item in sorted(left, key=lambda item: item.seconds, reverse=True)]
    failures: dict[str, str] = {}
    with progress(json) as bar, closing(executor.run(tasks)) as ended:
        for batch, [outcome] in bar.track(ended, total=len(tasks), description="items"):
            item = items[batch.name]
            if isinstance(outcome, str):
                failures[item.name] = outcome
                _say_failed(item, outcome)
            else:
                saved.keep(item, [one for one in outcome if isinstance(one, Reproduction)])
    return failures


def _run_all(
    chosen: "Sequence[Item]",
    options: Mapping[str, Mapping[str, Any]],
    given: Mapping[str, str],
    saved: "Keeping",
    json: bool,
) -> dict[str, str]:
    """Item → why it failed. What is finished is saved, whatever comes after it."""
    from ..cluster.work import reason
    from ..paper import command_of

    failures: dict[str, str] = {}
    for place, item in enumerate(chosen, 1):
        command, start = command_of(item, given), None
        if not saved.is_finished(item, command):
            title = item.name if len(chosen) == 1 else f"{place} of {len(chosen)}, {item.name}"
            start = time.monotonic()
            try:
                saved.keep(item, _run(item, options[item.name], command, title, json))
            except Exception as error:  # whatever it is: the other items shall run
                failures[item.name] = reason(error)
                _say_failed(item, failures[item.name])
                continue
        if not json:
            print_item(item, saved.records(item) or [], start and time.monotonic() - start)
    return failures


def _run(item: "Item", options: Mapping[str, Any], command: str, title: str, quiet: bool) -> "list[Reproduction]":
    from ..paper import run

    with progress(quiet) as bar:
        waiting = bar.add_task(title, total=None)

        def track(sequence: Sequence[Any], description: str) -> Iterable[Any]:
            bar.update(waiting, visible=False)
            return bar.track(sequence, description=f"{title}: {description}")

        return run(item, track, options, command)


def _show_sensitivity(chosen: "Sequence[Item]", options: Mapping[str, Mapping[str, Any]], json: bool) -> None:
    from ..paper.sensitivity import sensitivity

    recorder = Recorder("simulated")
    for item in chosen:
        with progress(json) as bar:
            moved = sensitivity(item, lambda one, text: bar.track(one, description=text), options[item.name])
        for one in moved:
            cell = {"item": item.name, "row": one.record.row, "column": one.record.column}
            recorder.add("sensitivity", 100 * one.change, "%", constant=one.constant, **cell)
        if not json:
            print_sensitivity(item, moved)
    if json:
        recorder.print_json()


def _options(texts: Sequence[str], chosen: "Sequence[Item]") -> dict[str, str]:
    """NAME=VALUE texts, each of which one of the items takes."""
    options = {}
    known = sorted({name for item in chosen for name in item.options})
    for text in texts:
        name, is_one, value = text.partition("=")
        if not is_one:
            raise ValueError(f"--set needs NAME=VALUE, windows=4 say, not {text!r}")
        if name not in known:
            raise ValueError(f"no item here has an option {name!r}; there are: {', '.join(known) or 'none'}")
        options[name] = value
    return options


def _list(chosen: "Sequence[Item]", saved: "Keeping", in_detail: bool, json: bool) -> None:
    if json:
        print_records(one for item in chosen for one in saved.records(item) or [])
    elif in_detail:
        for item in chosen:
            print_details(item, saved)
    else:
        print_list(chosen, saved)


def _finish(chosen: "Sequence[Item]", saved: "Keeping", failures: Mapping[str, str], json: bool) -> None:
    records = [one for item in chosen if item.name not in failures for one in saved.records(item) or []]
    if json:
        print_records(records)
    elif len(chosen) > 1:
        failed = f"; {len(failures)} failed: {', '.join(failures)}" if failures else ""
        print(f"{len(chosen)} items: {summary(records)}{failed}")
    if failures:
        if len(chosen) > 1 and saved.path is not None:
            _say_what_is_saved(saved)
        raise typer.Exit(1)


def _say_what_is_saved(saved: "Keeping") -> None:
    if saved.path is not None and saved.path.exists():
        print(f"Finished items are kept in {saved.path}; the same command goes on from there.", file=sys.stderr)


def _say_failed(item: "Item", why: str) -> None:
    print(f"tilepress: error: {item.name} failed: {why}", file=sys.stderr)
