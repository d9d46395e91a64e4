"""Anda's adaptive precision search: mantissas for four tensor types that cost few bit operations and little quality.

Pure: the caller measures what a combination costs in quality. One product of an FP16 activation with an INT4
weight is 64 bit operations (BOPs), one of an m-bit mantissa with it 4 · m; `products` says in how many products each
of the four types takes part.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

Mantissas = tuple[int, int, int, int]
Products = tuple[int, int, int, int]
Perplexity = Callable[[Mantissas | None], float]  # None: activations as they are

WEIGHT_BITS = 4
FP16_BOPS = 64
STARTS = range(4, 14)
LIMIT = 32  # iterations


@dataclass(frozen=True)
class Step:
    """One iteration. `loss`: perplexity lost, relative to that of activations as they are; `accepted`: whether the
    combination became the best."""

    number: int
    mantissas: Mantissas
    bops: int
    perplexity: float
    loss: float
    accepted: bool


@dataclass(frozen=True)
class Found:
    """What a search ended with. `within`: whether it keeps to the tolerance; where nothing does, `mantissas` are the
    most precise that were tried. `steps`: all that was tried, in order. `exhausted`: whether it ended because nothing
    cheaper was left to try, and not because of the limit."""

    mantissas: Mantissas
    within: bool
    tolerance: float
    reference: float
    perplexity: float
    saving: float
    steps: tuple[Step, ...]
    exhausted: bool

    @property
    def loss(self) -> float:
        return relative_loss(self.perplexity, self.reference)


def bops(mantissas: Mantissas, products: Products) -> int:
    """Bit operations of one token."""
    return sum(WEIGHT_BITS * bits * count for bits, count in zip(mantissas, products, strict=True))


def bops_saving(mantissas: Mantissas, products: Products) -> float:
    """How many times fewer bit operations than with FP16 activations."""
    return FP16_BOPS * sum(products) / bops(mantissas, products)


def relative_loss(perplexity: float, reference: float) -> float:
    """0.01: one per cent worse than the reference."""
    return perplexity / reference - 1


def search(
    perplexity: Perplexity,
    products: Products,
    tolerance: float,
    *,
    starts: Iterable[int] = STARTS,
    limit: int = LIMIT,
    track: Callable[[Step], None] = lambda _: None,
) -> Found:
    """Algorithm 1 of Anda.

    A queue begins with a combination of equal mantissas for each of `starts`. In each of at most `limit` iterations the
    one with the fewest BOPs is taken from it; if it has fewer than the best so far and its loss is within `tolerance`,
    it becomes the best, and the four combinations with one mantissa shorter by one join the queue, but those tried or
    queued before. The queue gives fewest BOPs first, so nothing after one that costs as much as the best can win or
    be relaxed: there the search ends, with the result that trying on would have.
    """
    _check(products, tolerance, limit)
    reference = perplexity(None)
    queue = [(bops(uniform(bits), products), uniform(bits)) for bits in starts]
    most_precise = max(queue)[1]
    heapq.heapify(queue)
    queued, steps, best = {mantissas for _, mantissas in queue}, list[Step](), None
    while queue and len(steps) < limit:
        cost, mantissas = heapq.heappop(queue)
        if best is not None and cost >= best.bops:
            queue = []
            break
        step = _step(len(steps) + 1, mantissas, cost, perplexity(mantissas), reference, tolerance)
        steps.append(step)
        track(step)
        if step.accepted:
            best = step
            fresh = [candidate for candidate in relaxed(mantissas) if candidate not in queued]
            queued.update(fresh)
            for candidate in fresh:
                heapq.heappush(queue, (bops(candidate, products), candidate))
    chosen = best.mantissas if best is not None else most_precise
    return _found(chosen, tolerance, reference, perplexity(chosen), products, steps, not queue)


def brute_force(
    perplexity: Perplexity,
    products: Products,
    tolerance: float,
    *,
    least: int = min(STARTS),
    most: int = max(STARTS),
    track: Callable[[Step], None] = lambda _: None,
) -> Found:
    """The cheapest of all combinations of `least` to `most` bits within `tolerance`: they are tried cheapest first,
    so that the first that keeps to it is the optimum."""
    _check(products, tolerance, 1)
    reference = perplexity(None)
    steps = list[Step]()
    for mantissas in cheapest_first(products, least, most):
        cost = bops(mantissas, products)
        step = _step(len(steps) + 1, mantissas, cost, perplexity(mantissas), reference, tolerance)
        steps.append(step)
        track(step)
        if step.accepted:
            break
    last = steps[-1]
    return _found(last.mantissas, tolerance, reference, last.perplexity, products, steps, True)


@lru_cache(maxsize=1)
def cheapest_first(products: Products, least: int, most: int) -> tuple[Mantissas, ...]:
    every: Iterator[Mantissas] = product(range(least, most + 1), repeat=4)  # type: ignore[assignment]
    return tuple(sorted(every, key=lambda mantissas: (bops(mantissas, products), mantissas)))


def uniform(bits: int) -> Mantissas:
    return bits, bits, bits, bits


def relaxed(mantissas: Mantissas) -> list[Mantissas]:
    """The four with one mantissa shorter by one; none shorter than one bit."""
    qkv, o, u, d = mantissas
    four: list[Mantissas] = [(qkv - 1, o, u, d), (qkv, o - 1, u, d), (qkv, o, u - 1, d), (qkv, o, u, d - 1)]
    return [candidate for candidate in four if min(candidate) >= 1]


def _step(number: int, mantissas: Mantissas, cost: int, perplexity: float, reference: float, tolerance: float) -> Step:
    loss = relative_loss(perplexity, reference)
    return Step(number, mantissas, cost, perplexity, loss, loss <= tolerance)


def _found(
    mantissas: Mantissas,
    tolerance: float,
    reference: float,
    perplexity: float,
    products: Products,
    steps: Sequence[Step],
    exhausted: bool,
) -> Found:
    saving, within = bops_saving(mantissas, products), relative_loss(perplexity, reference) <= tolerance
    return Found(mantissas, within, tolerance, reference, perplexity, saving, tuple(steps), exhausted)


def _check(products: Products, tolerance: float, limit: int) -> None:
    if len(products) != 4 or min(products) < 0 or not sum(products):
        raise ValueError(f"products are counted for each of four tensor types, and not all are 0; not {products}")
    if not tolerance >= 0:
        raise ValueError(f"a tolerance is a share of perplexity from 0 on, 0.01 for 1 %, not {tolerance}")
    if limit < 1:
        raise ValueError(f"a search takes at least one iteration, not {limit}")
