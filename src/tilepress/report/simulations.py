"""What simulators recorded: tiles on their way, what was busy, what stalled, where energy and area go."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..records import Record, Value
from ..simulate.deca.timeline import STEPS
from .blocks import Block, Plot, Section, Sources, number
from .families import ARRAYS, ENGINES, TILES, UNITS, Figure, read, table
from .plots import Point, bars

BUSY = ("memory", "matrix", "decompressor")


def simulator_section(records: Sequence[Record]) -> Section | None:
    engines, units = read(ENGINES, records), read(UNITS, records)
    plots = [*_timelines(read(TILES, records)), *_busy(engines), *_stalls(engines)]
    tables = [table(ENGINES, engines), table(UNITS, units)]
    blocks: list[Block] = [*plots, *(block for block in tables if block is not None)]
    about = "Cycle by cycle: the first tiles of a core, how busy its parts were, and why a decompressor waited."
    return Section("simulators", "Simulators", about, blocks) if blocks else None


def array_blocks(records: Sequence[Record]) -> list[Block]:
    """Of accelerators: breakdowns where there are parts, and the table."""
    figures = read(ARRAYS, records)
    alone = [one for one in figures if one.record.command.startswith(ARRAYS.commands[0])]
    beside = table(ARRAYS, [one for one in figures if one not in alone])
    found = [*(_breakdown(what, figures) for what in ("energy", "area")), _front(figures), table(ARRAYS, alone)]
    found.append(replace(beside, title="Accelerators side by side") if beside else None)
    return [block for block in found if block is not None]


def _timelines(figures: Sequence[Figure]) -> list[Plot]:
    plots = []
    for system in dict.fromkeys(one.words["system"] for one in figures):
        here = [one for one in figures if one.words["system"] == system]
        cells = {(int(one.words["tile"]), one.what): one.record.value for one in here}
        tiles = sorted({tile for tile, _ in cells})
        traces = [_step(name, colour, tiles, cells) for name, colour in STEPS.items()]
        layout = {
            "barmode": "overlay",
            "height": 110 + 13 * len(tiles),
            "xaxis": {"title": {"text": "cycle"}},
            "yaxis": {"title": {"text": "tile"}, "autorange": "reversed"},
        }
        plots.append(Plot(f"First tiles of a core: {system}", traces, Sources.of(one.record for one in here), layout))
    return plots


def _step(name: str, colour: str, tiles: Sequence[int], cells: dict[tuple[int, str], Any]) -> dict[str, Any]:
    lengths, starts = ([cells.get((tile, f"{name}.{what}")) for tile in tiles] for what in ("cycles", "start"))
    bar = {"type": "bar", "orientation": "h", "name": name, "y": list(tiles), "x": lengths, "base": starts}
    return bar | {"marker": {"color": colour}}


def _busy(figures: Sequence[Figure]) -> list[Plot]:
    shown = [one for one in figures if one.what in BUSY]
    series: dict[str, list[Point]] = {what: [] for what in BUSY}
    for one in shown:
        series[one.what].append((_name(one), number(one.record.value)))
    return [bars("How busy", "% of the time", series, Sources.of(one.record for one in shown))] if shown else []


def _stalls(figures: Sequence[Figure]) -> list[Plot]:
    shown = [one for one in figures if one.what.startswith("stall.")]
    series: dict[str, list[Point]] = {}
    for one in shown:
        series.setdefault(one.what.removeprefix("stall."), []).append((_name(one), number(one.record.value)))
    title = "Why the decompressor waited"
    sources = Sources.of(one.record for one in shown)
    return [bars(title, "cycles a tile", series, sources, stacked=True)] if shown else []


def _name(figure: Figure) -> str:
    return f"{figure.words['machine_name']}, {figure.words['system']}, {figure.words['kernel']}"


def _breakdown(what: str, figures: Sequence[Figure]) -> Plot | None:
    """Parts of designs that record at least two of them: one alone is no breakdown."""
    parts = [one for one in figures if one.what.startswith(f"{what}.") and number(one.record.value) is not None]
    count: dict[tuple[str, str], int] = {}
    for one in parts:
        count[_run(one)] = count.get(_run(one), 0) + 1
    shown = [one for one in parts if count[_run(one)] > 1]
    if not shown:
        return None
    series: dict[str, list[Point]] = {}
    for one in shown:
        label = f"{one.words['design']}, {_worded(one.words['task'])}"
        series.setdefault(one.what.removeprefix(f"{what}."), []).append((label, number(one.record.value)))
    title = f"{what.capitalize()} by part"
    return bars(title, shown[0].record.unit, series, Sources.of(one.record for one in shown), stacked=True)


def _front(figures: Sequence[Figure]) -> Plot | None:
    """Loss over energy of formats on machines; what no other beats is filled."""
    runs: dict[tuple[str, str], dict[str, Value]] = {}
    for one in figures:
        runs.setdefault(_run(one), {})[one.what] = one.record.value
    points = {run: found for run, found in runs.items() if {"loss", "energy", "on_front"} <= found.keys()}
    if not points:
        return None
    units = {one.what: one.record.unit for one in figures}
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [found["energy"] for found in points.values()],
        "y": [found["loss"] for found in points.values()],
        "text": [f"{design}, {task}" for design, task in points],
        "hovertemplate": "%{text}: %{x:.4g}, %{y:.3f} %<extra></extra>",
        "marker": {"size": 9, "color": "@0", "symbol": [_symbol(found["on_front"]) for found in points.values()]},
    }
    axes = {"xaxis": {"title": {"text": f"energy, {units['energy']}"}}, "yaxis": {"title": {"text": "loss, %"}}}
    used = Sources.of(one.record for one in figures if _run(one) in points)
    return Plot("Loss and energy", [trace], used, axes, "Filled: what no other point beats.")


def _worded(task: str) -> str:
    """LLaMA-13B.prefill_2048.batch_1 as LLaMA-13B, prefill 2048, batch 1."""
    return re.sub(r"\.(?=[a-z]+_)", ", ", task).replace("_", " ")


def _symbol(on_front: Value) -> str:
    return "circle" if on_front is True else "circle-open"


def _run(figure: Figure) -> tuple[str, str]:
    return figure.words["design"], figure.words["task"]
