"""Reproductions as plots: a line for each row over the columns, ours and the paper's apart."""

from collections.abc import Sequence
from typing import Any

from ..records import Reproduction
from .charts import Series, line_chart

FEWEST = 3  # columns that make a line
MOST = 20.0  # per cent that a plot of losses beyond all use still shows


def item_charts(title: str, records: Sequence[Reproduction]) -> list[Any]:
    """A figure for each unit in which an item has rows of several figures; none where it has none."""
    charts = []
    for unit in dict.fromkeys(one.unit for one in records):
        series = [line for line in _lines([one for one in records if one.unit == unit]) if _is_line(line)]
        if series:
            charts.append(_chart(title, unit, series))
    return charts


def _chart(title: str, unit: str, series: Sequence[Series]) -> Any:
    values = [value for line in series for value in line.y if value is not None]
    if unit != "%" or max(values) <= 100:
        return line_chart(title, "", unit, series)
    chart = line_chart(f"{title} (more than {MOST:g} % lies above)", "", unit, series)
    return chart.update_yaxes(range=[1.1 * min(0.0, *values) - 0.5, MOST])


def _lines(records: Sequence[Reproduction]) -> list[Series]:
    lines = []
    for row in dict.fromkeys(one.row for one in records):
        cells = [one for one in records if one.row == row]
        columns, notes = [one.column for one in cells], [one.note for one in cells]
        lines.append(Series(row, columns, [_number(one.value) for one in cells], notes))
        lines.append(Series(f"{row} (paper)", columns, [_number(one.paper) for one in cells], dashed=True))
    return lines


def _is_line(series: Series) -> bool:
    return sum(value is not None for value in series.y) >= FEWEST


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
