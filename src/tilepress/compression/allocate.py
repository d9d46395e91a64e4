"""Which of its candidates each layer takes, so that the summed loss is small within a budget of bytes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Candidate:
    """What a layer may become: the `nbytes` that takes, and the `loss` that it is thought to cost."""

    nbytes: int
    loss: float


@dataclass(frozen=True)
class Allocation:
    """`chosen`: for each layer the number of its candidate. `bound`: no choice within the budget has less loss."""

    budget: int
    chosen: list[int]
    nbytes: int
    loss: float
    bound: float


class BudgetError(ValueError):
    """A budget that the smallest candidates exceed; `least` is the sum of their bytes."""

    def __init__(self, budget: int, least: int) -> None:
        super().__init__(f"a budget of {budget} bytes is too small: the smallest candidates take {least}")
        self.least = least


@dataclass(frozen=True)
class _Step:
    """From one candidate of a layer to the next on its hull."""

    layer: int
    candidate: int
    nbytes: int
    saved: float

    @property
    def rate(self) -> float:
        return self.saved / self.nbytes


def allocate(layers: Sequence[Sequence[Candidate]], budget: int) -> Allocation:
    """One candidate for each layer; those whose loss is not finite are never taken.

    (1) Every layer starts with its smallest candidate. (2) Steps along the layers' lower convex hulls are taken by
    falling loss saved per byte, as a Lagrange multiplier would choose them, where they still fit. (3) What is left of
    the budget pays for single exchanges, on a hull or not, the largest saving first. The loss is above the least
    possible by less than the first step that did not fit saves; `Allocation.bound` says by how much at most.
    """
    hulls = [lower_hull(candidates) for candidates in layers]
    chosen = [hull[0] for hull in hulls]
    left = budget - sum(one[index].nbytes for one, index in zip(layers, chosen, strict=True))
    if left < 0:
        raise BudgetError(budget, budget - left)
    bound: float | None = None
    stopped = set[int]()
    for step in sorted(_steps(layers, hulls), key=lambda step: -step.rate):
        if step.layer in stopped:
            continue
        if step.nbytes > left:
            if bound is None:
                bound = _loss(layers, chosen) - step.rate * left
            stopped.add(step.layer)
            continue
        chosen[step.layer], left = step.candidate, left - step.nbytes
    left = _fill(layers, chosen, left)
    loss = _loss(layers, chosen)
    return Allocation(budget, chosen, budget - left, loss, loss if bound is None else min(bound, loss))


def lower_hull(candidates: Sequence[Candidate]) -> list[int]:
    """Numbers of the candidates on the lower convex hull of loss over bytes, from the smallest to the best."""
    usable = [index for index, one in enumerate(candidates) if math.isfinite(one.loss)]
    if not usable:
        raise ValueError("a layer has no candidate with a finite loss: give it others")
    hull: list[int] = []
    for index in sorted(usable, key=lambda index: (candidates[index].nbytes, candidates[index].loss)):
        if hull and candidates[index].loss >= candidates[hull[-1]].loss:
            continue
        while len(hull) > 1 and _is_above(*(candidates[one] for one in (*hull[-2:], index))):
            hull.pop()
        hull.append(index)
    return hull


def _is_above(first: Candidate, middle: Candidate, last: Candidate) -> bool:
    """Whether `middle` is on or above the line through the others."""
    to_middle = (first.loss - middle.loss) * (last.nbytes - first.nbytes)
    return to_middle <= (first.loss - last.loss) * (middle.nbytes - first.nbytes)


def _steps(layers: Sequence[Sequence[Candidate]], hulls: Sequence[Sequence[int]]) -> Iterator[_Step]:
    for layer, (candidates, hull) in enumerate(zip(layers, hulls, strict=True)):
        for before, after in pairwise(hull):
            old, new = candidates[before], candidates[after]
            yield _Step(layer, after, new.nbytes - old.nbytes, old.loss - new.loss)


def _fill(layers: Sequence[Sequence[Candidate]], chosen: list[int], left: int) -> int:
    """Exchange candidates in `chosen` while one that is better fits into `left` bytes; returns what is left then."""
    while True:
        steps = [
            _Step(layer, index, new.nbytes - candidates[now].nbytes, candidates[now].loss - new.loss)
            for layer, (candidates, now) in enumerate(zip(layers, chosen, strict=True))
            for index, new in enumerate(candidates)
            if new.nbytes - candidates[now].nbytes <= left and new.loss < candidates[now].loss
        ]
        if not steps:
            return left
        best = max(steps, key=lambda step: step.saved)
        chosen[best.layer], left = best.candidate, left - best.nbytes


def _loss(layers: Sequence[Sequence[Candidate]], chosen: Sequence[int]) -> float:
    return math.fsum(candidates[index].loss for candidates, index in zip(layers, chosen, strict=True))
