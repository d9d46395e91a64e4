"""Units as they were synthesised: what each design costs, and how that grows with its parameters."""

from collections.abc import Mapping, Sequence

from ..records import Record
from .blocks import Block, Plot, Section, Sources, number
from .catalogue import SETTINGS, SYNTHESIS
from .families import Figure, read, table
from .plots import Point, lines

PLOTTED = {"area": "area, in the library's unit", "delay": "longest path, ps"}
LEAST = 3  # values of a parameter that make a line


def synthesis_section(records: Sequence[Record]) -> Section | None:
    figures = read(SYNTHESIS, records)
    designs: dict[tuple[str, str], list[Figure]] = {}
    for one in figures:
        designs.setdefault((one.label("unit"), one.label("library")), []).append(one)
    plots = [plot for some in designs.values() for plot in _plots(some)]
    blocks: list[Block] = [*plots, *filter(None, [table(SYNTHESIS, figures)])]
    about = (
        "The papers' units as RTL, mapped to gates or to a library's cells: without memories, wires and sizing for a "
        "clock. Areas are in the library's own unit."
    )
    return Section("synthesis", "Synthesis", about, blocks, open=2) if blocks else None


def _plots(figures: Sequence[Figure]) -> list[Plot]:
    """Of one unit in one library: over the parameter with most values, a line for each value of the others."""
    varied = _varied(figures)
    if not varied or len(varied[0][1]) < LEAST:
        return []
    (axis, values), others = varied[0], [name for name, _ in varied[1:]]
    plots = []
    for metric, of in PLOTTED.items():
        shown = [one for one in figures if one.metric == metric]
        series: dict[str, dict[str, float | None]] = {}
        for one in sorted(shown, key=lambda figure: [_order(figure.label(name)) for name in others]):
            name = ", ".join(f"{other}={one.label(other)}" for other in others)
            series.setdefault(name, dict.fromkeys(values))[one.label(axis)] = number(one.record.value)
        title = f"{shown[0].label('unit')}: {metric} by {axis}" if shown else ""
        points: Mapping[str, Sequence[Point]] = {name: list(line.items()) for name, line in series.items()}
        plots += [lines(title, "", points, Sources.of(one.record for one in shown), axis=axis, of=of)] if shown else []
    return plots


def _varied(figures: Sequence[Figure]) -> list[tuple[str, list[str]]]:
    """Parameters that designs differ in and their values, that with most values first."""
    values = {name: {one.label(name) for one in figures if name in one.record.labels} for name in SETTINGS}
    varied = [(name, sorted(of_it, key=_order)) for name, of_it in values.items() if len(of_it) > 1]
    return sorted(varied, key=lambda pair: -len(pair[1]))


def _order(label: str) -> tuple[float, str]:
    """Numbers by size, then words."""
    return (float(label), "") if label.isdecimal() else (float("inf"), label)
