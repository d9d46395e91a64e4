"""A plan by its steps alone: to the cycle what `reference` gives, without going through cycles.

Memory serves one request at a time, in the order load 0, load 1, load 2, store 0, load 3, store 1, …: loads run two
steps ahead, as far as the two halves of a buffer reach. Each start is then the latest of what it waits for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from .plan import Plan, Step

MOST_STEPS = 50_000_000
_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(cache=True)


@dataclass(frozen=True)
class Times:
    """Cycles: until the last output is stored, and in which memory, array and what follows it were at work."""

    total: int
    memory: int
    array: int
    post: int


def run(plan: Plan) -> Times:
    if plan.steps > MOST_STEPS:
        raise ValueError(f"{plan.steps} steps are more than {MOST_STEPS}: take fewer tokens or larger tiles")
    kinds = np.array([_numbers(step) for step in _kinds(plan)], np.int64)
    return Times(*map(int, _run(kinds, plan.outer, plan.inner, plan.drain, plan.overlapped)))


def _kinds(plan: Plan) -> list[Step]:
    """The eight steps that there are: the outer tile whole or the last, and the inner first, whole, last, or both."""
    outers, inners = (0, plan.outer - 1), (0, min(1, plan.inner - 1), plan.inner - 1)
    return [plan.step(outer, inner) for outer in outers for inner in inners]


def _numbers(step: Step) -> tuple[int, int, int, int]:
    return step.load, step.compute, step.post, step.store


@_compiled
def _run(kinds, outers, inners, drain, overlapped):  # type: ignore[no-untyped-def]
    free = 0  # memory
    loaded = computed = posted = 0  # of the last step
    before = 0  # computed of the step before that
    waiting = np.zeros((3, 2), np.int64)  # stores of the last steps: ready, cycles
    memory = array = post = 0
    steps = outers * inners
    for step in range(steps):
        outer, inner = step // inners, step % inners
        kind = 3 * (outer == outers - 1) + (0 if inner == 0 else 2 if inner == inners - 1 else 1)
        load, compute, after, store = kinds[kind]
        if step >= 3:
            ready, cycles = waiting[step % 3]
            free = max(free, ready) + cycles if cycles else free
        free = max(free, before) + load if load else max(free, before)
        loaded = free
        start = max(loaded, computed)
        before, computed = computed, start + compute
        begin = max(computed + drain, posted)
        posted = begin + after
        if not overlapped:
            computed = max(computed, posted)
        waiting[step % 3, 0], waiting[step % 3, 1] = posted, store
        memory, array, post = memory + load + store, array + compute, post + after
    for step in range(max(steps - 3, 0), steps):
        ready, cycles = waiting[step % 3]
        free = max(free, ready) + cycles if cycles else free
    return max(free, posted), memory, array, post
