"""`tilepress sweep`: many recipes or designs, on this machine or on a Ray cluster."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import Json, figure_text, print_records, print_table, progress
from .report import Html, check_page, write_page
from .workers import RayAddress, WorkerThreads, chosen_executor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..records import Record
    from ..sweep import Grid, Swept
    from ..sweep.front import Place, Subject

MOST_ROWS = 50  # of the table at the end
MOST_LIVE = 12  # of the front while a sweep runs


def sweep(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="What to vary; docs/sweeps.md has examples.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder of records; what it has is not done again.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Points at once; if not given, one model, or a simulation on each CPU.")
    ] = None,
    threads: WorkerThreads = None,
    ray: RayAddress = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Compute every point of a grid of recipes or designs, in several processes or on a Ray cluster.

    A point is a model compressed by a recipe and measured, or a simulation. Finished points are records in the folder,
    so the same command goes on where it was stopped, and a larger grid computes only what is new. A point that fails is
    named, the others go on, and the next run tries it again. At the end stands the Pareto front: size against
    perplexity, or area or energy against time.

    Example: tilepress sweep grid.toml -o swept --workers 2 --html swept.html
    """
    check_page(html, "sweep")
    from ..sweep import read_grid
    from ..sweep import sweep as run

    chosen = read_grid(grid)
    command = " ".join(["tilepress", *sys.argv[1:]])
    with chosen_executor(workers, threads, ray, _usual_workers(chosen)) as executor, _following(chosen, json) as follow:
        try:
            swept = run(chosen, out, executor, command, follow)
        except (Exception, KeyboardInterrupt):
            typer.echo(f"Finished points are kept in {out}; the same command goes on from there.", err=True)
            raise
    records = [one for some in swept.records.values() for one in some]
    write_page(html, f"Sweep of {grid}", records, with_explorer=False)
    if json:
        print_records(records)
    else:
        _print(swept, grid)
    if swept.failures:
        _name_failures(swept)
        raise typer.Exit(1)


def _usual_workers(grid: "Grid") -> int:
    """Too few points for a process each are computed here."""
    few = -(-len(grid) // grid.study.batch)
    return min(os.cpu_count() or 1, few) if grid.study.shares_cpu else 1


@contextmanager
def _following(grid: "Grid", quiet: bool) -> "Iterator[Callable[[Swept], None]]":
    """How far it is, and the front so far, on standard error where a terminal shows it."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    bar, front = progress(quiet), Text()
    task = bar.add_task("points", total=len(grid))

    def follow(swept: "Swept") -> None:
        bar.update(task, completed=swept.done)
        front.plain = "\n".join(front_lines(swept))

    if bar.disable:
        yield follow
    else:
        with Live(Group(bar, front), console=bar.console, transient=True):
            yield follow


def front_lines(swept: "Swept") -> list[str]:
    """The Pareto front so far, a line a point, the cheapest first; of the subjects, in turn."""
    from ..sweep import front

    study = swept.grid.study
    lines = [
        f"{study.cost} {figure_text(place.cost)}, {study.loss} {figure_text(place.loss)}: {_varied(swept.grid, place)}"
        for places in _places(swept).values()
        for place in front(places)
    ]
    return lines if len(lines) <= MOST_LIVE else [*lines[:MOST_LIVE], f"… {len(lines) - MOST_LIVE} more on the front"]


def _varied(grid: "Grid", place: "Place") -> str:
    return ", ".join(f"{axis} {_text(place, axis)}" for axis in grid.axes)


def _text(place: "Place", axis: str) -> str:
    return str(place.labels[axis.replace(".", "_")])


def _places(swept: "Swept") -> "dict[Subject, list[Place]]":
    from ..sweep import places

    return places(swept.grid.study, swept.records)


def _print(swept: "Swept", grid: Path) -> None:
    """All points where they are few, else those on the front."""
    from ..sweep import front

    by_subject = _places(swept)
    best = {place.point for places in by_subject.values() for place in front(places)}
    placed = [place for places in by_subject.values() for place in places]
    shown = placed if len(placed) <= MOST_ROWS else [place for place in placed if place.point in best]
    study, axes = swept.grid.study, list(swept.grid.axes)
    units = _units(swept)
    columns = [*axes, *(f"{metric}, {units[metric]}".rstrip(", ") for metric in units), "Pareto front"]
    rows = [_row(swept, place, axes, list(units), place.point in best) for place in shown[:MOST_ROWS]]
    title = f"{grid}: {len(best)} of {len(placed)} points are on the Pareto front of {study.cost} and {study.loss}"
    print_table(title, columns, rows, words=len(axes))
    if len(shown) > MOST_ROWS:
        print(f"{len(shown) - MOST_ROWS} more points are on it: --json or --html shows them")


def _units(swept: "Swept") -> dict[str, str]:
    """Metric → unit, of a point's own figures: cost and loss first."""
    study = swept.grid.study
    found = {one.metric: one.unit for records in swept.records.values() for one in records if _is_whole(one)}
    return {metric: found[metric] for metric in dict.fromkeys((study.cost, study.loss, *found)) if metric in found}


def _is_whole(record: "Record") -> bool:
    return record.labels.keys().isdisjoint(("statistic", "part"))


def _row(swept: "Swept", place: "Place", axes: Sequence[str], metrics: Sequence[str], is_best: bool) -> list[str]:
    values = {one.metric: one.value for one in swept.records[place.point] if _is_whole(one)}
    settings = [_text(place, axis) for axis in axes]
    return [*settings, *(figure_text(values.get(metric)) for metric in metrics), "yes" if is_best else ""]


def _name_failures(swept: "Swept") -> None:
    """Each reason once, with how many points have it."""
    reasons = list(swept.failures.values())
    for reason in dict.fromkeys(reasons):
        count = reasons.count(reason)
        points = "a point" if count == 1 else f"{count} points"
        typer.echo(f"tilepress: error: {points} of {len(swept.grid)} failed: {reason}", err=True)
