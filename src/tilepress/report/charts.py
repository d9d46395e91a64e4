"""Plots as HTML that needs nothing but itself: no server, no network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import write_text
from .templating import as_it_is, render


@dataclass(frozen=True)
class Series:
    """A line through (x, y); `labels` show where a pointer rests, `marks` says which points are filled."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    labels: Sequence[str] = ()
    marks: Sequence[bool] = ()
    dashed: bool = False


def line_chart(title: str, x: str, y: str, series: Sequence[Series], *, log_y: bool = False) -> Any:
    """A figure of plotly's; `x` and `y` name the axes."""
    import plotly.graph_objects as go

    figure = go.Figure([_trace(one) for one in series])
    figure.update_layout(title=title, xaxis_title=x, yaxis_title=y, template="plotly_white")
    if log_y:
        figure.update_yaxes(type="log")
    return figure


def write_page(path: Path, title: str, figures: Sequence[Any]) -> None:
    """One page with all `figures`, written beside and renamed."""
    parts = [figure.to_html(include_plotlyjs=not index, full_html=False) for index, figure in enumerate(figures)]
    write_text(path, render("figures.html", title=title, figures=map(as_it_is, parts)))


def _trace(series: Series) -> Any:
    import plotly.graph_objects as go

    symbols = ["circle" if mark else "circle-open" for mark in series.marks] or None
    return go.Scatter(
        name=series.name,
        x=list(series.x),
        y=list(series.y),
        text=list(series.labels) or None,
        mode="lines" if series.dashed else "lines+markers",
        marker={"symbol": symbols, "size": 9},
        line={"dash": "dash"} if series.dashed else None,
    )
