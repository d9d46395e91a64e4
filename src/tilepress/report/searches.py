"""Searches for mantissas, step by step."""

from collections.abc import Sequence
from typing import Any

from ..records import Record, Reproduction, Value
from .blocks import Block, Plot, Section, Sources, number, text
from .catalogue import SCHEMES, SEARCH, STEPS
from .families import Figure, read, table
from .plots import MOST
from .studies import TRACE

Step = tuple[int, Value, Value, bool]  # number, mantissas, loss in %, taken


def search_section(records: Sequence[Record]) -> Section | None:
    plots = [*_searched(read(STEPS, records)), *_reproduced(records)]
    tables = [table(SEARCH, read(SEARCH, records)), table(SCHEMES, read(SCHEMES, records))]
    blocks: list[Block] = [*plots, *(block for block in tables if block is not None)]
    about = "Anda's search tries the cheapest combination that is left; filled points were taken."
    return Section("search", "Precision search", about, blocks) if blocks else None


def _searched(figures: Sequence[Figure]) -> list[Plot]:
    plots = []
    for command in dict.fromkeys(one.words["command"] for one in figures):
        here = [one for one in figures if one.words["command"] == command]
        cells = {(int(one.words["step"]), one.metric): one.record.value for one in here}
        steps = [
            (step, cells.get((step, "mantissas")), cells.get((step, "loss")), cells.get((step, "accepted")) is True)
            for step in sorted({step for step, _ in cells})
        ]
        plots.append(_trace(f"Loss of every combination tried: {command}", steps, [one.record for one in here]))
    return plots


def _reproduced(records: Sequence[Record]) -> list[Plot]:
    """The paper's figure 9 of our own, whose rows are iterations."""
    cells = [one for one in records if isinstance(one, Reproduction) and one.item == TRACE]
    rows = [row for row in dict.fromkeys(one.row for one in cells) if "iteration " in row]
    by_place = {(one.row, one.column): one for one in cells}
    steps = []
    for row in rows:
        tried, loss = by_place.get((row, "combination")), by_place.get((row, "loss"))
        if tried and loss:
            steps.append((int(row.rpartition(" ")[2]), tried.value, loss.value, tried.note == "taken"))
    return [_trace(f"{TRACE}: loss of every combination tried", steps, cells)] if steps else []


def _trace(title: str, steps: Sequence[Step], records: Sequence[Record]) -> Plot:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "loss",
        "x": [step for step, *_ in steps],
        "y": [loss for _, _, loss, _ in steps],
        "tips": [_tip(*step) for step in steps],
        "line": {"color": "@0", "width": 1},
        "marker": {"size": 9, "color": "@0", "symbol": [_symbol(taken) for *_, taken in steps]},
    }
    values = [value for _, _, loss, _ in steps if (value := number(loss)) is not None]
    layout: dict[str, Any] = {"xaxis": {"title": {"text": "iteration"}}}
    layout["yaxis"] = {"title": {"text": "loss of perplexity, %"}}
    above = bool(values) and max(values) > MOST
    if above:
        layout["yaxis"]["range"] = [1.1 * min(0.0, *values) - 0.5, MOST]
    note = f"What is more than {MOST:g} % ends there." if above else ""
    return Plot(title, [trace], Sources.of(records), layout | {"showlegend": False}, note)


def _tip(step: int, mantissas: Value, loss: Value, taken: bool) -> str:
    return f"{step}: {mantissas}, {text(loss)} %{', taken' if taken else ''}"


def _symbol(taken: bool) -> str:
    return "circle" if taken else "circle-open"
