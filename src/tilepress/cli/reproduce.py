"""`tilepress reproduce`: the papers' values beside ours."""

import json as json_lines
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Json, figure_text, print_table, progress

if TYPE_CHECKING:
    from ..paper import Item
    from ..records import Reproduction, Value


def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[PAPER[/ITEM] | all]…", help="What to reproduce.")
    ] = None,
    list_items: Annotated[bool, typer.Option("--list", help="Show the items instead, with what is known.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of an item; --list shows them.")
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="Keep records in this file; items that it holds already are not run again.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write plots of what can be plotted to this HTML file.")] = None,
    json: Json = False,
) -> None:
    """Run the papers' experiments and show each value that they print, ours, and the deviation.

    A cell matches, deviates, or is not possible here. How near a match must be is part of the item. With --records a
    run that was stopped goes on where it stopped; delete the file to start anew.

    Example: tilepress reproduce deca/table2
    """
    from ..paper import find

    chosen = find(items or ["all"])
    kept = _read(records) if records else {}
    if list_items or not items:
        _print_list(chosen, kept, json)
        return
    texts = _options(set_ or [], chosen)
    options = {item.name: item.read_options(texts) for item in chosen}
    failures = {}
    for item in chosen:
        if item.name not in kept:
            try:
                kept[item.name] = _run(item, options[item.name], json)
            except (ValueError, OSError, RuntimeError) as error:
                failures[item.name] = error
                continue
            if records:
                _write(records, kept)
        if not json:
            _print_item(item, kept[item.name])
    if page:
        _write_page(page, chosen, kept)
    _finish([one for item in chosen for one in kept.get(item.name, [])], chosen, failures, json)


def _run(item: "Item", options: Mapping[str, Any], quiet: bool) -> "list[Reproduction]":
    from ..paper import run

    with progress(quiet) as bar:
        waiting = bar.add_task(item.name, total=None)

        def track(sequence: Sequence[Any], description: str) -> Iterable[Any]:
            bar.update(waiting, visible=False)
            return bar.track(sequence, description=f"{item.name}: {description}")

        return run(item, track, options, " ".join(["tilepress", *sys.argv[1:]]))


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


def _read(path: Path) -> "dict[str, list[Reproduction]]":
    """Item → its records; other records in the file are not ours to keep."""
    from ..records import Reproduction

    found: dict[str, list[Reproduction]] = {}
    if path.exists():
        try:
            for fields in json_lines.loads(path.read_text("utf-8")):
                found.setdefault(fields["item"], []).append(Reproduction(**fields))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} holds no reproductions; give another file to --records ({error})") from error
    return found


def _write(path: Path, kept: "Mapping[str, Sequence[Reproduction]]") -> None:
    from ..records import to_json

    beside = path.with_name(path.name + ".part")
    beside.write_text(to_json(one for records in kept.values() for one in records) + "\n", "utf-8")
    os.replace(beside, path)


def _write_page(path: Path, chosen: "Sequence[Item]", kept: "Mapping[str, Sequence[Reproduction]]") -> None:
    from ..report import item_charts, write_page

    found = [chart for item in chosen for chart in item_charts(f"{item.name}: {item.title}", kept.get(item.name, []))]
    write_page(path, "Reproductions", found)


def _print_list(chosen: "Sequence[Item]", kept: "Mapping[str, Sequence[Reproduction]]", json: bool) -> None:
    if json:
        _print_json(one for item in chosen for one in kept.get(item.name, []))
        return
    rows = [
        [item.name, item.title, item.kind, _summary(kept.get(item.name)), str(len(item.published)), _choices(item)]
        for item in chosen
    ]
    print_table("Items", ["item", "what", "how", "state", "values", "options"], rows, words=4)


def _choices(item: "Item") -> str:
    return " ".join(f"{name}={default}" for name, default in item.options.items())


def _summary(records: "Sequence[Reproduction] | None") -> str:
    """How many cells are in which state, and the largest deviation of those that deviate."""
    from ..paper import STATES

    if records is None:
        return "not run"
    counts = {state: [one for one in records if one.state == state] for state in STATES}
    parts = [f"{len(found)} {_verb(state, found)}" for state, found in counts.items() if found]
    return ", ".join(parts) or "no value to compare with"


def _verb(state: str, records: "Sequence[Reproduction]") -> str:
    if state != "deviates":
        return state
    furthest = max(records, key=lambda one: abs(one.deviation or 0) / (100 if one.unit == "%" else 1))
    return f"deviates (by up to {_deviation(furthest)})" if furthest.deviation else state


def _print_item(item: "Item", records: "Sequence[Reproduction]") -> None:
    rows = [
        [one.row, one.column, one.unit, _text(one.paper), _text(one.value), _deviation(one), one.state or "", one.note]
        for one in records
    ]
    columns = ["row", "column", "unit", "paper", "ours", "deviation", "state", "note"]
    print_table(f"{item.name}: {item.title} ({item.kind})", columns, rows, words=3)
    for note in item.notes:
        print(f"  {note}")
    print(f"  {_summary(records)}\n")


def _finish(
    records: "Sequence[Reproduction]", chosen: "Sequence[Item]", failures: Mapping[str, Exception], json: bool
) -> None:
    if json:
        _print_json(records)
    elif len(chosen) > 1:
        print(f"{len(chosen)} items: {_summary(records)}")
    for name, error in failures.items():
        print(f"tilepress: error: {name} failed: {error}", file=sys.stderr)
    if failures:
        raise typer.Exit(1)


def _print_json(records: "Iterable[Reproduction]") -> None:
    from ..records import to_json

    print(to_json(records))


def _text(value: "Value") -> str:
    return "" if value is None else figure_text(value)


def _deviation(record: "Reproduction") -> str:
    if record.deviation is None:
        return ""
    return f"{record.deviation:+.1f} points" if record.unit == "%" else f"{100 * record.deviation:+.1f} %"
