"""A search for Anda's mantissas as plots: the paper's figure 9 of our own."""

from collections.abc import Sequence
from typing import Any

from ..compression.search import FP16_BOPS, Found, Products, Step, bops
from .charts import Series, line_chart


def trace_charts(search: Found, products: Products) -> list[Any]:
    """The bit operations and the loss of every combination tried, in order; accepted ones are filled."""
    whole = FP16_BOPS * sum(products)
    labels = [_label(step) for step in search.steps]
    marks = [step.accepted for step in search.steps]
    numbers = [step.number for step in search.steps]
    cost = Series("tried", numbers, [100 * step.bops / whole for step in search.steps], labels, marks)
    best = Series("best so far", numbers, _best(search.steps, whole), dashed=True)
    loss = Series("tried", numbers, [100 * step.loss for step in search.steps], labels, marks)
    limit = Series("tolerance", numbers, [100 * search.tolerance] * len(numbers), dashed=True)
    chosen = 100 * bops(search.mantissas, products) / whole
    title = (
        f"{_tuple(search.mantissas)}: {chosen:.1f} % of FP16's bit operations, {100 * search.loss:+.2f} % perplexity"
    )
    return [
        line_chart(title, "iteration", "bit operations, % of FP16 activations", [cost, best]),
        line_chart("Loss on the calibration text", "iteration", "loss of perplexity, %", [loss, limit]),
    ]


def _best(steps: Sequence[Step], whole: int) -> list[float | None]:
    best: list[float | None] = []
    for step in steps:
        best.append(100 * step.bops / whole if step.accepted else best[-1] if best else None)
    return best


def _label(step: Step) -> str:
    return f"{_tuple(step.mantissas)}, {100 * step.loss:+.3f} %, {'taken' if step.accepted else 'not taken'}"


def _tuple(mantissas: Sequence[int]) -> str:
    return f"[{', '.join(map(str, mantissas))}]"
