"""The first tiles of a core, step by step, as a page to look at."""

from pathlib import Path
from typing import Any

from ..._files import replacing
from .simulation import Result

STEPS = {  # step: colour, of Okabe and Ito's
    "waiting for memory": "#009E73",
    "on its way from the cache": "#56B4E9",
    "in the decompressor": "#E69F00",
    "on its way to the core": "#CC79A7",
    "multiplied": "#0072B2",
}


def steps(result: Result, core: int, tile: int) -> dict[str, tuple[int, int]]:
    """Step → first cycle and length."""
    trace, plan = result.trace, result.plan
    issue, arrive, start, out, done, end = (
        int(one[core, tile]) for one in (trace.issue, trace.arrive, trace.start, trace.end, trace.done, trace.product)
    )
    there = min(max(issue, arrive), start)
    spans = ((issue, there), (there, start), (start, out), (out, done), (end - plan.matrix, end))
    return {name: (first, last - first) for name, (first, last) in zip(STEPS, spans, strict=True)}


def write_timeline(path: Path, title: str, result: Result, tiles: int = 40, core: int = 0) -> None:
    """Write the page beside `path` and rename it."""
    with replacing(path) as made:
        figure(title, result, tiles, core).write_html(made, include_plotlyjs=True)


def figure(title: str, result: Result, tiles: int, core: int) -> Any:
    import plotly.graph_objects as go

    shown = range(min(tiles, result.trace.issue.shape[1]))
    rows = [steps(result, core, tile) for tile in shown]
    made = go.Figure()
    for name, colour in STEPS.items():
        bases, lengths = [one[name][0] for one in rows], [one[name][1] for one in rows]
        made.add_bar(y=list(shown), x=lengths, base=bases, orientation="h", name=name, marker_color=colour)
    made.update_layout(title=title, barmode="overlay", template="plotly_white", legend={"orientation": "h"})
    made.update_xaxes(title="cycle").update_yaxes(title="tile of core 0", autorange="reversed")
    return made
