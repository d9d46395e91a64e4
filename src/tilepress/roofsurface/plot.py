"""The Roof-Surface to turn, and its bounding region diagram, as one page that needs no network."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._extras import need_lab
from .._files import replacing
from .bord import bord
from .domains import MATRIX, MEMORY, VECTOR, bounds
from .model import Prediction

need_lab(__name__)

COLOURS = {MEMORY: "#009E73", VECTOR: "#E69F00", MATRIX: "#0072B2"}  # Okabe and Ito's, told apart by all
GRID = 120
SAME = 0.05  # how near two kernels may be to each other to share a label
ROOM = 4.0  # how far beyond the outermost kernel or line the axes go


def write_plot(path: Path, title: str, rates: Mapping[str, float], kernels: Sequence[Prediction]) -> None:
    """Write the page beside `path` and rename it. `rates` has memory, vector and matrix, as have all `kernels`."""
    with replacing(path) as made:
        figure(title, rates, kernels).write_html(made, include_plotlyjs=True)


def figure(title: str, rates: Mapping[str, float], kernels: Sequence[Prediction]) -> Any:
    from plotly.subplots import make_subplots

    specs = [[{"type": "scene"}, {"type": "xy"}]]
    titles = ("Roof-Surface", "Bounding regions")
    made = make_subplots(1, 2, specs=specs, subplot_titles=titles, horizontal_spacing=0.06)
    x, y = _axes(rates, kernels)
    for trace in _surface(rates, x, y, kernels):
        made.add_trace(trace, 1, 1)
    for trace in _diagram(rates, x, y, kernels):
        made.add_trace(trace, 1, 2)
    for place, text in _labels(kernels).items():
        # Aslant, since many kernels have the same height.
        at = {"x": math.log10(place[0]), "y": math.log10(place[1]), "xanchor": "left", "yanchor": "bottom"}
        made.add_annotation(text=text, textangle=-60, showarrow=False, row=1, col=2, **at)
    log_x = {"type": "log", "title": "AI_XM, matrix operations a byte", "dtick": 1}
    log_y = {"type": "log", "title": "AI_XV, matrix operations a vector operation", "dtick": 1}
    made.update_layout(title=title, template="plotly_white", legend={"orientation": "h"})
    made.update_scenes(xaxis=log_x | {"title": "AI_XM"}, yaxis=log_y | {"title": "AI_XV"})
    made.update_scenes(zaxis={"title": "TFLOPS"}, camera={"eye": {"x": -1.7, "y": -1.7, "z": 1.0}})
    made.update_xaxes(log_x, range=_span(x)).update_yaxes(log_y, range=_span(y))
    return made


def _span(axis: np.ndarray) -> list[float]:
    return [math.log10(axis[0]), math.log10(axis[-1])]


def _labels(kernels: Sequence[Prediction]) -> dict[tuple[float, float], str]:
    """Names at their places, those together that would lie on one another."""
    labels: dict[tuple[float, float], str] = {}
    for one in kernels:
        place = (ai_xm(one), ai_xv(one))
        near = next((other for other in labels if np.allclose(place, other, rtol=SAME)), None)
        labels[near or place] = f"{labels[near]}, {_name(one)}" if near else _name(one)
    return labels


def _axes(rates: Mapping[str, float], kernels: Sequence[Prediction]) -> tuple[np.ndarray, np.ndarray]:
    lines = bord(rates)
    return _axis([lines.right, *(ai_xm(one) for one in kernels)]), _axis([lines.top, *(ai_xv(one) for one in kernels)])


def _axis(points: Sequence[float]) -> np.ndarray:
    return np.geomspace(min(points) / ROOM, max(points) * ROOM, GRID)


def ai_xm(kernel: Prediction) -> float:
    return 1 / kernel.demands[MEMORY]


def ai_xv(kernel: Prediction) -> float:
    return 1 / kernel.demands[VECTOR]


def _surface(rates: Mapping[str, float], x: np.ndarray, y: np.ndarray, kernels: Sequence[Prediction]) -> list[Any]:
    import plotly.graph_objects as go

    demands = {MEMORY: 1 / x[None, :], VECTOR: 1 / y[:, None], MATRIX: np.ones((GRID, GRID))}
    height, binding, domains = bounds(rates, demands)
    flops = kernels[0].flops / kernels[0].surface.rate if kernels else 1.0
    flat = [[(index + end) / len(domains), COLOURS[one]] for index, one in enumerate(domains) for end in (0, 1)]
    scale = {"colorscale": flat, "cmin": -0.5, "cmax": len(domains) - 0.5, "showscale": False}
    heights = height * flops / 1e12
    surface = go.Surface(x=x, y=y, z=heights, surfacecolor=binding, opacity=0.8, hoverinfo="skip", **scale)
    names, tops = [_name(one) for one in kernels], [one.flops / 1e12 for one in kernels]
    places = {"x": [ai_xm(one) for one in kernels], "y": [ai_xv(one) for one in kernels]}
    marker = {"size": 5, "color": [COLOURS[one.surface.binding] for one in kernels], "line": {"width": 2}}
    hover = {"hovertext": names, "name": "kernels", "showlegend": False}
    return [surface, go.Scatter3d(**places, z=tops, mode="markers", marker=marker, **hover)]


def _diagram(rates: Mapping[str, float], x: np.ndarray, y: np.ndarray, kernels: Sequence[Prediction]) -> list[Any]:
    import plotly.graph_objects as go

    traces = []
    for domain, corners in _regions(rates, x, y).items():
        xs, ys = zip(*corners, strict=True)
        look = {"fill": "toself", "fillcolor": COLOURS[domain], "opacity": 0.25, "line": {"color": "black"}}
        traces.append(go.Scatter(x=xs, y=ys, mode="lines", name=f"bound by {domain}", hoverinfo="skip", **look))
    colours = [COLOURS[one.surface.binding] for one in kernels]
    places = {"x": [ai_xm(one) for one in kernels], "y": [ai_xv(one) for one in kernels]}
    marker = {"color": colours, "size": 9, "line": {"width": 1, "color": "black"}}
    names = [_name(one) for one in kernels]
    return [*traces, go.Scatter(**places, hovertext=names, mode="markers", marker=marker, name="kernels")]


def _regions(rates: Mapping[str, float], x: np.ndarray, y: np.ndarray) -> dict[str, list[tuple[float, float]]]:
    """Corners of what each domain binds, within the axes; the borders are the diagram's three lines."""
    lines = bord(rates)
    left, right, bottom, top = (float(one) for one in (x[0], x[-1], y[0], y[-1]))
    corner = (lines.right, lines.top)
    first = max(left, bottom / lines.slope)
    entry = (first, first * lines.slope)
    return {
        MEMORY: [entry, (left, entry[1]), (left, top), (corner[0], top), corner, entry],
        VECTOR: [entry, corner, (right, corner[1]), (right, bottom), (first, bottom), entry],
        MATRIX: [corner, (corner[0], top), (right, top), (right, corner[1]), corner],
    }


def _name(kernel: Prediction) -> str:
    return str(kernel.format) if kernel.density == 1 else f"{kernel.format} {100 * kernel.density:g} %"
