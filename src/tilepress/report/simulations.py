"""What simulators recorded: tiles on their way, what was busy, what stalled, where energy and area go."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..records import Record, Value
from ..simulate.deca.timeline import STEPS
from .blocks import Block, Plot, Section, Sources, number, text
from .catalogue import ARRAYS, ENGINES, SIDE_BY_SIDE, TILES, UNITS
from .families import Figure, read, table
from .plots import Point, bars, colour, lines


def simulator_section(records: Sequence[Record]) -> Section | None:
    engines, units = read(ENGINES, records), read(UNITS, records)
    plots = [*_timelines(read(TILES, records)), *_busy(engines), *_stalls(engines)]
    tables = [table(ENGINES, engines), table(UNITS, units)]
    blocks: list[Block] = [*plots, *(block for block in tables if block is not None)]
    about = "Cycle by cycle: the first tiles of a core, how busy its parts were, and why a decompressor waited."
    return Section("simulators", "Simulators", about, blocks) if blocks else None


def array_blocks(records: Sequence[Record]) -> list[Block]:
    """Of accelerators: breakdowns where there are parts, and the table."""
    alone, beside = read(ARRAYS, records), read(SIDE_BY_SIDE, records)
    plots = [
        *(_breakdown(metric, [*alone, *beside]) for metric in ("energy", "area")),
        *_by_length(beside),
        _front(beside),
    ]
    blocks = [*plots, table(ARRAYS, alone), table(SIDE_BY_SIDE, beside)]
    return [block for block in blocks if block is not None]


def _timelines(figures: Sequence[Figure]) -> list[Plot]:
    plots = []
    for name in dict.fromkeys(_name(one) for one in figures):
        here = [one for one in figures if _name(one) == name]
        cells = {(int(one.words["tile"]), one.label("step"), one.metric): one.record.value for one in here}
        tiles = sorted({tile for tile, *_ in cells})
        traces = [_step(step, colour, tiles, cells) for step, colour in STEPS.items()]
        layout = {
            "barmode": "overlay",
            "height": 110 + 13 * len(tiles),
            "xaxis": {"title": {"text": "cycle"}},
            "yaxis": {"title": {"text": "tile"}, "autorange": "reversed"},
        }
        plots.append(Plot(f"First tiles of a core: {name}", traces, Sources.of(one.record for one in here), layout))
    return plots


def _step(step: str, colour: str, tiles: Sequence[int], cells: dict[tuple[int, str, str], Any]) -> dict[str, Any]:
    lengths, starts = ([cells.get((tile, step, metric)) for tile in tiles] for metric in ("cycles", "start"))
    bar = {"type": "bar", "orientation": "h", "name": step, "y": list(tiles), "x": lengths, "base": starts}
    return bar | {"marker": {"color": colour}}


def _busy(figures: Sequence[Figure]) -> list[Plot]:
    shown = [one for one in figures if one.metric == "busy"]
    series: dict[str, list[Point]] = {}
    for one in shown:
        series.setdefault(one.label("part"), []).append((_name(one), number(one.record.value)))
    return [bars("How busy", "% of the time", series, Sources.of(one.record for one in shown))] if shown else []


def _stalls(figures: Sequence[Figure]) -> list[Plot]:
    shown = [one for one in figures if one.metric == "stall"]
    series: dict[str, list[Point]] = {}
    for one in shown:
        series.setdefault(one.label("cause"), []).append((_name(one), number(one.record.value)))
    title = "Why the decompressor waited"
    sources = Sources.of(one.record for one in shown)
    return [bars(title, "cycles a tile", series, sources, stacked=True)] if shown else []


def _name(figure: Figure) -> str:
    return f"{figure.words['target']}, {figure.words['system']}, {figure.words['kernel']}"


def _breakdown(metric: str, figures: Sequence[Figure]) -> Plot | None:
    """Parts of designs that record at least two of them: one alone is no breakdown."""
    of_parts = [one for one in figures if one.metric == metric and one.label("part")]
    parts = [one for one in of_parts if number(one.record.value) is not None]
    count: dict[tuple[str, str], int] = {}
    for one in parts:
        count[_run(one)] = count.get(_run(one), 0) + 1
    shown = [one for one in parts if count[_run(one)] > 1]
    if not shown:
        return None
    series: dict[str, list[Point]] = {}
    for one in shown:
        label = f"{one.words['design']}, {one.words['task']}"
        series.setdefault(one.label("part"), []).append((label, number(one.record.value)))
    title = f"{metric.capitalize()} by part"
    return bars(title, shown[0].record.unit, series, Sources.of(one.record for one in shown), stacked=True)


def _by_length(figures: Sequence[Figure]) -> list[Plot]:
    """Time and energy of designs over the length, where there are several lengths of one model in one stage."""
    parted = {"part", "product", "activations"}
    shown = [one for one in figures if one.metric in ("time", "energy") and parted.isdisjoint(one.record.labels)]
    plots = []
    for metric, model, stage in dict.fromkeys((one.metric, one.label("model"), one.label("stage")) for one in shown):
        here = [one for one in shown if (one.metric, one.label("model"), one.label("stage")) == (metric, model, stage)]
        if len({one.label("tokens") for one in here}) > 1:
            plots.append(_over_tokens(f"{model}, {stage}: {metric}", here))
    return plots


def _over_tokens(title: str, figures: Sequence[Figure]) -> Plot:
    series: dict[str, list[Point]] = {}
    for one in figures:
        design = ", ".join(filter(None, (one.label("design"), one.label("mapping"))))
        series.setdefault(design, []).append((one.label("tokens"), number(one.record.value)))
    sources = Sources.of(one.record for one in figures)
    return lines(title, figures[0].record.unit, series, sources, axis="tokens", is_log=True)


def _front(figures: Sequence[Figure]) -> Plot | None:
    """Loss over energy of formats on machines, a colour a machine; the Pareto front is filled."""
    runs: dict[tuple[str, str], dict[str, Value]] = {}
    whole = [one for one in figures if not one.label("part") and not one.is_error]
    for one in whole:
        runs.setdefault(_run(one), {})[one.metric] = one.record.value
    points = {run: values for run, values in runs.items() if {"loss", "energy", "on_front"} <= values.keys()}
    if not points:
        return None
    units = {one.metric: one.record.unit for one in whole}
    designs = dict.fromkeys(design for design, _ in points)
    traces = [
        _points(design, index, {task: values for (of, task), values in points.items() if of == design})
        for index, design in enumerate(designs)
    ]
    axes = {"xaxis": {"title": {"text": f"energy, {units['energy']}"}}, "yaxis": {"title": {"text": "loss, %"}}}
    used = Sources.of(one.record for one in figures if _run(one) in points)
    return Plot("Loss and energy", traces, used, axes, "Filled: what no other point beats.")


def _points(design: str, index: int, points: Mapping[str, Mapping[str, Value]]) -> dict[str, Any]:
    shown = colour(index)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": design,
        "x": [values["energy"] for values in points.values()],
        "y": [values["loss"] for values in points.values()],
        "tips": [f"{design}, {task}: {_figures(values)}" for task, values in points.items()],
        "marker": {"size": 9, "color": shown, "symbol": [_symbol(values["on_front"]) for values in points.values()]},
    }


def _figures(values: Mapping[str, Value]) -> str:
    return f"energy {text(values['energy'])}, loss {text(values['loss'])} %"


def _symbol(on_front: Value) -> str:
    return "circle" if on_front is True else "circle-open"


def _run(figure: Figure) -> tuple[str, str]:
    return figure.words["design"], figure.words["task"]
