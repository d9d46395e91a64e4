"""Searches for mantissas, step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import Record, Reproduction, Value
from .blocks import Block, Plot, Section, Sources, number, text
from .catalogue import SCHEMES, SEARCH, STEPS
from .families import Figure, read, table
from .plots import MOST
from .studies import TRACE


@dataclass(frozen=True)
class Step:
    """A combination that was tried: its loss in %, and times fewer bit operations than FP16's, if that was recorded."""

    number: int
    mantissas: Value
    loss: Value
    taken: bool
    saving: Value = None


def search_section(records: Sequence[Record]) -> Section | None:
    whole = read(SEARCH, records)
    tolerances = {one.words["command"]: number(one.record.value) for one in whole if one.metric == "tolerance"}
    plots = [*_searched(read(STEPS, records), tolerances), *_reproduced(records)]
    tables = [table(SEARCH, whole), table(SCHEMES, read(SCHEMES, records))]
    blocks: list[Block] = [*plots, *(block for block in tables if block is not None)]
    about = "Anda's search tries the cheapest combination that is left; filled points were taken."
    return Section("search", "Precision search", about, blocks) if blocks else None


def _searched(figures: Sequence[Figure], tolerances: Mapping[str, float | None]) -> list[Plot]:
    """`tolerances`: by command."""
    plots = []
    for command in dict.fromkeys(one.words["command"] for one in figures):
        here = [one for one in figures if one.words["command"] == command]
        steps = _steps(here)
        records = [one.record for one in here]
        plots.append(_losses(f"Loss of every combination tried: {command}", steps, records, tolerances.get(command)))
        if all(number(one.saving) is not None for one in steps):
            plots.append(_savings(f"Bit operations of every combination tried: {command}", steps, records))
    return plots


def _steps(figures: Sequence[Figure]) -> list[Step]:
    cells = {(int(one.words["step"]), one.metric): one.record.value for one in figures}
    return [
        Step(
            step,
            cells.get((step, "mantissas")),
            cells.get((step, "loss")),
            cells.get((step, "accepted")) is True,
            cells.get((step, "bops_saving")),
        )
        for step in sorted({step for step, _ in cells})
    ]


def _reproduced(records: Sequence[Record]) -> list[Plot]:
    """The paper's figure 9 of our own, whose rows are iterations."""
    cells = [one for one in records if isinstance(one, Reproduction) and one.item == TRACE]
    rows = [row for row in dict.fromkeys(one.row for one in cells) if "iteration " in row]
    by_place = {(one.row, one.column): one for one in cells}
    steps = []
    for row in rows:
        tried, loss = by_place.get((row, "combination")), by_place.get((row, "loss"))
        if tried and loss:
            steps.append(Step(int(row.rpartition(" ")[2]), tried.value, loss.value, tried.note == "taken"))
    return [_losses(f"{TRACE}: loss of every combination tried", steps, cells)] if steps else []


def _losses(title: str, steps: Sequence[Step], records: Sequence[Record], tolerance: float | None = None) -> Plot:
    """Loss by iteration, and a dashed line at the tolerance, where it was recorded."""
    values = [value for one in steps if (value := number(one.loss)) is not None]
    axis: dict[str, Any] = {"title": {"text": "loss of perplexity, %"}}
    above = bool(values) and max(values) > MOST
    if above:
        axis["range"] = [1.1 * min(0.0, *values) - 0.5, MOST]
    traces = [_tried(steps, [one.loss for one in steps])]
    if tolerance is not None:
        traces.append(_dashed("tolerance", steps, [tolerance] * len(steps)))
    note = f"What is more than {MOST:g} % ends there." if above else ""
    return _over_iterations(title, traces, axis, records, note)


def _savings(title: str, steps: Sequence[Step], records: Sequence[Record]) -> Plot:
    """Bit operations by iteration, and the fewest that were taken so far."""
    best: list[Value] = []
    for one in steps:
        best.append(one.saving if one.taken else best[-1] if best else None)
    traces = [_tried(steps, [one.saving for one in steps]), _dashed("best so far", steps, best)]
    return _over_iterations(title, traces, {"title": {"text": "times fewer bit operations than FP16"}}, records)


def _over_iterations(
    title: str, traces: Sequence[dict[str, Any]], axis: dict[str, Any], records: Sequence[Record], note: str = ""
) -> Plot:
    layout = {"xaxis": {"title": {"text": "iteration"}}, "yaxis": axis, "showlegend": len(traces) > 1}
    return Plot(title, traces, Sources.of(records), layout, note)


def _tried(steps: Sequence[Step], values: Sequence[Value]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "tried",
        "x": [one.number for one in steps],
        "y": list(values),
        "tips": [_tip(one) for one in steps],
        "line": {"color": "@0", "width": 1},
        "marker": {"size": 9, "color": "@0", "symbol": ["circle" if one.taken else "circle-open" for one in steps]},
    }


def _dashed(name: str, steps: Sequence[Step], values: Sequence[Value]) -> dict[str, Any]:
    x = [one.number for one in steps]
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": list(values),
            "line": {"color": "@1", "dash": "dash"}}  # fmt: skip


def _tip(step: Step) -> str:
    saving = f", {text(step.saving)} × fewer bit operations" if step.saving is not None else ""
    return f"{step.number}: {step.mantissas}, {text(step.loss)} %{saving}{', taken' if step.taken else ''}"
