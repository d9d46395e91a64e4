"""Units as they were synthesised: what each design costs and takes, and how that grows with its parameters."""

from collections.abc import Mapping, Sequence

from ..records import Record
from .blocks import Block, Plot, Section, Sources, number
from .catalogue import ENERGIES, SETTINGS, SYNTHESIS
from .families import Figure, read, table
from .plots import Point, lines

PLOTTED = {"area": "area, in the library's unit", "delay": "longest path, ps"}
MANTISSA = "m="  # how cases begin that differ in the length of mantissas alone
LEAST = 3  # values of a parameter that make a line


def synthesis_section(records: Sequence[Record]) -> Section | None:
    figures, energies = read(SYNTHESIS, records), read(ENERGIES, records)
    designs: dict[tuple[str, str], list[Figure]] = {}
    for one in figures:
        designs.setdefault((one.label("unit"), one.label("library")), []).append(one)
    plots = [plot for some in designs.values() for plot in _plots(some)]
    plots += _energy_plots(energies)
    blocks: list[Block] = [*plots, *filter(None, [table(SYNTHESIS, figures), table(ENERGIES, energies)])]
    about = (
        "The papers' units as RTL, mapped to gates or to a library's cells: without memories, wires and sizing for a "
        "clock. Areas are in the library's own unit."
    )
    return Section("synthesis", "Synthesis", about, blocks) if blocks else None


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


def _energy_plots(figures: Sequence[Figure]) -> list[Plot]:
    """Of each design that multiplies with mantissas of several lengths: an operation's energy, and its parts."""
    designs: dict[tuple[str, ...], list[Figure]] = {}
    for one in filter(_is_of_products, figures):
        words = (one.words["parameters"], one.words["operation"], one.words["conditions"], one.label("library"))
        designs.setdefault((one.label("unit"), *words), []).append(one)
    return [
        _energy_plot(design, shown)
        for design, shown in designs.items()
        if len({one.label("case") for one in shown}) >= LEAST
    ]


def _is_of_products(figure: Figure) -> bool:
    is_energy = figure.metric.startswith("energy") and figure.metric != "energy_per_item"
    return is_energy and figure.label("case").startswith(MANTISSA) and figure.label("operation").endswith("products")


def _energy_plot(design: tuple[str, ...], figures: Sequence[Figure]) -> Plot:
    unit, parameters, operation, *_ = design
    series: dict[str, list[Point]] = {}
    for one in sorted(figures, key=lambda figure: _order(figure.label("case").removeprefix(MANTISSA))):
        point = (one.label("case").removeprefix(MANTISSA), number(one.record.value))
        series.setdefault(ENERGIES.heading(one.metric), []).append(point)
    title = f"{unit} {parameters}: energy of {operation} by mantissa"
    return lines(title, "pJ", series, Sources.of(one.record for one in figures), axis="m")


def _varied(figures: Sequence[Figure]) -> list[tuple[str, list[str]]]:
    """Parameters that designs differ in and their values, that with most values first."""
    values = {name: {one.label(name) for one in figures if name in one.record.labels} for name in SETTINGS}
    varied = [(name, sorted(of_it, key=_order)) for name, of_it in values.items() if len(of_it) > 1]
    return sorted(varied, key=lambda pair: -len(pair[1]))


def _order(label: str) -> tuple[float, str]:
    """Numbers by size, then words."""
    return (float(label), "") if label.isdecimal() else (float("inf"), label)
