"""The Roof-Surface to turn, and its bounding region diagram, as one page that needs no network."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .bord import bord
from .domains import MATRIX, MEMORY, VECTOR, bounds
from .model import Prediction

COLOURS = {MEMORY: "#009E73", VECTOR: "#E69F00", MATRIX: "#0072B2"}  # Okabe and Ito's, told apart by all
GRID = 120
ROOM = 4.0  # how far beyond the outermost kernel or line the axes go


def write_plot(path: Path, title: str, rates: Mapping[str, float], kernels: Sequence[Prediction]) -> None:
    """Write the page beside `path` and rename it. `rates` has memory, vector and matrix, as have all `kernels`."""
    beside = path.with_name(path.name + ".part")
    figure(title, rates, kernels).write_html(beside, include_plotlyjs=True)
    os.replace(beside, path)


def figure(title: str, rates: Mapping[str, float], kernels: Sequence[Prediction]) -> Any:
    from plotly.subplots import make_subplots

    specs = [[{"type": "scene"}, {"type": "xy"}]]
    made = make_subplots(1, 2, specs=specs, subplot_titles=("Roof-Surface", "Bounding regions"))
    x, y = _axes(rates, kernels)
    for trace in _surface(rates, x, y, kernels):
        made.add_trace(trace, 1, 1)
    for trace in _diagram(rates, x, y, kernels):
        made.add_trace(trace, 1, 2)
    log_x = {"type": "log", "title": "AI_XM, matrix operations a byte"}
    log_y = {"type": "log", "title": "AI_XV, matrix operations a vector operation"}
    made.update_layout(title=title, template="plotly_white", legend={"orientation": "h"})
    made.update_scenes(xaxis=log_x, yaxis=log_y, zaxis={"title": "TFLOPS (multiply-adds)"})
    made.update_xaxes(log_x).update_yaxes(log_y)
    return made


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
    traces = []
    for index, domain in enumerate(domains):
        part = np.where(binding == index, height * flops / 1e12, np.nan)
        flat = [[0, COLOURS[domain]], [1, COLOURS[domain]]]
        name = f"bound by {domain}"
        traces.append(go.Surface(x=x, y=y, z=part, colorscale=flat, showscale=False, name=name, opacity=0.8))
    names, tops = [_name(one) for one in kernels], [one.flops / 1e12 for one in kernels]
    places = {"x": [ai_xm(one) for one in kernels], "y": [ai_xv(one) for one in kernels]}
    marker = {"size": 4, "color": "black"}
    points = go.Scatter3d(**places, z=tops, text=names, mode="markers+text", marker=marker, name="kernels")
    return [*traces, points]


def _diagram(rates: Mapping[str, float], x: np.ndarray, y: np.ndarray, kernels: Sequence[Prediction]) -> list[Any]:
    import plotly.graph_objects as go

    lines = bord(rates)
    corner = (lines.right, lines.top)
    ends = [
        ("memory | vector", [x[0], corner[0]], [x[0] * lines.slope, corner[1]]),
        ("memory | matrix", [corner[0], corner[0]], [corner[1], y[-1]]),
        ("vector | matrix", [corner[0], x[-1]], [corner[1], corner[1]]),
    ]
    traces = [go.Scatter(x=xs, y=ys, mode="lines", name=name) for name, xs, ys in ends]
    colours = [COLOURS[one.surface.binding] for one in kernels]
    places = {"x": [ai_xm(one) for one in kernels], "y": [ai_xv(one) for one in kernels]}
    names, marker = [_name(one) for one in kernels], {"color": colours, "size": 9}
    text = {"text": names, "textposition": "top center"}
    return [*traces, go.Scatter(**places, **text, mode="markers+text", marker=marker, name="kernels")]


def _name(kernel: Prediction) -> str:
    return str(kernel.format) if kernel.density == 1 else f"{kernel.format} {100 * kernel.density:g} %"
