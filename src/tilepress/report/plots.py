"""Plots of figures: bars, lines and heat maps, as charts.js takes them.

A colour is "@0", "@1", …: the page puts Okabe and Ito's there, which all tell apart, as its theme has them.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from .blocks import Plot, Sources, text, unit_text

Point = tuple[str, float | None]
COLOURS = 7
INK = "@i"  # that of the page's words
BAR, ROOM, LEGEND = 22, 110, 30  # pixels of a bar, of all around bars, and of a legend below
SHADES = [[0, "#eef4fa"], [1, "#5b9fd3"]]  # of one hue, all light enough for dark words
DARK = "#10151a"
STEEP = 20  # times the median: what is more needs a logarithmic scale
MOST = 20.0  # per cent that a plot of losses beyond all use still shows


def colour(index: int) -> str:
    return f"@{index % COLOURS}"


def bars(
    title: str,
    unit: str,
    series: Mapping[str, Sequence[Point]],
    sources: Sources,
    *,
    errors: Mapping[str, Sequence[float | None]] | None = None,
    stacked: bool = False,
    marks: Mapping[str, Sequence[Point]] | None = None,
    note: str = "",
) -> Plot:
    """Lying bars, one group a label; `marks` are drawn as diamonds of the colour of the series with their name. The
    only series of figures without a unit gives its name to the axis."""
    names, spread = list(series), errors or {}
    traces = [_bar(name, index, series[name], spread.get(name)) for index, name in enumerate(names)]
    if marks:
        traces = [{**trace, "offsetgroup": trace["name"]} for trace in traces]  # a diamond lies on its own bar
    traces += [_diamonds(name, names.index(name), points) for name, points in (marks or {}).items()]
    labels = dict.fromkeys(label for points in series.values() for label, _ in points)
    thickness = len(labels) * (1 if stacked else max(1.0, 0.6 * len(series)))
    seen, note = _seen(unit, series, note)
    layout = {
        "barmode": "stack" if stacked else "group",
        "height": round(ROOM + BAR * thickness + (LEGEND if len(traces) > 1 else 0)),
        "xaxis": {
            "title": {"text": unit_text(unit) or (names[0] if len(names) == 1 else "")},
            "rangemode": "tozero",
            **seen,
        },
        "yaxis": {"autorange": "reversed", "type": "category"},
        "showlegend": len(traces) > 1,
    }
    return Plot(title, traces, sources, layout, note)


def lines(
    title: str,
    unit: str,
    series: Mapping[str, Sequence[Point]],
    sources: Sources,
    *,
    dashed: Mapping[str, Sequence[Point]] | None = None,
    axis: str = "",
    of: str = "",
    note: str = "",
    is_log: bool = False,
) -> Plot:
    """A line a series over the labels of its points; a dashed one has the colour of the series of its name. `of`: what
    the figures are, where they have no unit. `is_log`: whether their axis is logarithmic in any case."""
    names = list(series)
    traces = [_line(name, index, points) for index, (name, points) in enumerate(series.items())]
    traces += [_line(name, names.index(name), points, dashed=True) for name, points in (dashed or {}).items()]
    seen, note = _seen(unit, series, note)
    if is_log or (not unit and _is_steep(series)):
        seen = {"type": "log"}
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": axis}, "type": "category"},
        "yaxis": {"title": {"text": unit_text(unit) or of}, **seen},
        "showlegend": len(traces) > 1,
    }
    return Plot(title, traces, sources, layout, note)


def heat_map(
    title: str, unit: str, columns: Sequence[str], rows: Mapping[str, Sequence[float | None]], sources: Sources,
    note: str = "",
) -> Plot:  # fmt: skip
    """A cell a figure, with the figure in it. Losses beyond MOST have one colour."""
    values = [value for row in rows.values() for value in row if value is not None]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": list(columns),
        "y": list(rows),
        "z": [list(row) for row in rows.values()],
        "text": [[text(value) for value in row] for row in rows.values()],
        "unit": unit_text(unit),
        "colorscale": SHADES,
        "textfont": {"color": DARK},
    }
    if _is_loss(unit, values) and max(values) > MOST:
        trace |= {"zmin": min(0.0, *values), "zmax": MOST}
    layout = {
        "height": ROOM + 30 * len(rows),
        "xaxis": {"type": "category", "showgrid": False},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
    }
    return Plot(title, [trace], sources, layout, note)


def _seen(unit: str, series: Mapping[str, Sequence[Point]], note: str) -> tuple[dict[str, Any], str]:
    """An axis that losses beyond all use do not flatten the others on, and a note that says so."""
    values = [value for points in series.values() for _, value in points if value is not None]
    if not _is_loss(unit, values) or max(values) <= 100:
        return {}, note
    return {"range": [1.1 * min(0.0, *values) - 0.5, MOST]}, f"{note} What is more than {MOST:g} % ends there.".strip()


def _is_steep(series: Mapping[str, Sequence[Point]]) -> bool:
    """Whether few of the figures, perplexities say, are beyond all others by far."""
    values = [value for points in series.values() for _, value in points if value is not None]
    return bool(values) and min(values) > 0 and max(values) > STEEP * median(values)


def _is_loss(unit: str, values: Sequence[float]) -> bool:
    """Whether these are losses, most of them small, and not shares."""
    return unit == "%" and bool(values) and median(values) <= MOST


def _bar(name: str, index: int, points: Sequence[Point], errors: Sequence[float | None] | None) -> dict[str, Any]:
    labels, values = [label for label, _ in points], [value for _, value in points]
    trace: dict[str, Any] = {"type": "bar", "orientation": "h", "name": name, "y": labels, "x": values}
    trace["marker"] = {"color": colour(index)}
    if errors and any(errors):
        trace["error_x"] = {"type": "data", "array": list(errors), "thickness": 1, "color": INK}
    return trace


def _diamonds(name: str, index: int, points: Sequence[Point]) -> dict[str, Any]:
    labels, values = [label for label, _ in points], [value for _, value in points]
    marker = {"symbol": "diamond", "size": 9, "color": colour(index), "line": {"width": 1.5, "color": INK}}
    return {
        "type": "scatter", "mode": "markers", "name": f"{name}, paper", "y": labels, "x": values, "marker": marker,
        "orientation": "h", "offsetgroup": name,
    }  # fmt: skip


def _line(name: str, index: int, points: Sequence[Point], dashed: bool = False) -> dict[str, Any]:
    labels, values = [label for label, _ in points], [value for _, value in points]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{name}, paper" if dashed else name,
        "x": labels,
        "y": values,
        "line": {"dash": "dot" if dashed else "solid", "color": colour(index)},
        "marker": {"symbol": "diamond-open" if dashed else "circle", "size": 7, "color": colour(index)},
    }
