"""Designs side by side as plots: what `tilepress simulate compare` gives."""

from collections.abc import Sequence
from typing import Any

from ..simulate.arrays.compare import Figures, Point, front
from .charts import Series, line_chart


def design_charts(model: str, figures: Sequence[Figures]) -> list[Any]:
    """Time and energy by length, for prompts and for next tokens."""
    charts = []
    for stage in dict.fromkeys(one.stage for one in figures):
        shown = [one for one in figures if one.stage == stage]
        times = _lines(shown, [1e3 * one.seconds for one in shown])
        energies = _lines(shown, [1e3 * one.joules for one in shown])
        charts.append(line_chart(f"{model}, {stage}: time", "tokens", "ms", times, log_y=True))
        charts.append(line_chart(f"{model}, {stage}: energy", "tokens", "mJ", energies, log_y=True))
    return charts


def front_chart(points: Sequence[Point]) -> Any:
    """Loss and energy of every format on every machine; those on the front are filled."""
    best = front(points)
    lines = []
    for machine in dict.fromkeys(one.machine for one in points):
        mine = sorted((one for one in points if one.machine == machine), key=lambda one: one.joules)
        labels = [f"{one.activations}, KV {one.kv}, {1e3 * one.seconds:.4g} ms, {one.mm2:.3g} mm²" for one in mine]
        marks = [one in best for one in mine]
        lines.append(Series(machine, [1e3 * one.joules for one in mine], [one.loss for one in mine], labels, marks))
    return line_chart("Formats and machines; filled: on the front", "mJ", "loss of perplexity, %", lines)


def _lines(figures: Sequence[Figures], values: Sequence[float]) -> list[Series]:
    lines = []
    for design in dict.fromkeys((one.design, one.mapping) for one in figures):
        mine = [pair for pair in zip(figures, values, strict=True) if (pair[0].design, pair[0].mapping) == design]
        lines.append(
            Series(", ".join(filter(None, design)), [one.tokens for one, _ in mine], [value for _, value in mine])
        )
    return lines
