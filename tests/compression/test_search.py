"""Anda's search: its steps by hand, its bounds, and how far from the optimum it ends."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilepress.compression.search import STARTS, bops, bops_saving, brute_force, relaxed, search, uniform

OPT = (3, 1, 4, 4)


def additive(*sensitivities):
    """Perplexity 100 that each mantissa worsens on its own: its sensitivity halves with every bit."""
    return lambda mantissas: (
        100
        + sum(
            sensitivity * 2.0**-bits
            for sensitivity, bits in zip(sensitivities, mantissas or [math.inf] * 4, strict=True)
        )
    )


def only(*allowed):
    """Perplexity that is lost entirely unless all mantissas are at least those of `allowed`."""
    return lambda mantissas: 1.0 if mantissas is None or all(map(int.__ge__, mantissas, allowed)) else 2.0


def test_bit_operations():
    assert bops((7, 7, 6, 5), OPT) == 4 * (3 * 7 + 7 + 4 * 6 + 4 * 5)
    assert bops_saving((7, 7, 6, 5), OPT) == pytest.approx(2.667, abs=0.001)
    assert bops_saving(uniform(13), OPT) == pytest.approx(1.23, abs=0.005)
    assert bops_saving(uniform(4), (5, 6, 7, 8)) == 4
    assert bops_saving(uniform(16), OPT) == 1


def test_the_walk_of_the_papers_figure():
    """OPT-125M with 1 %: uniform ones first, then always the cheapest relaxation of the best."""
    outcome = search(only(7, 7, 6, 5), OPT, 0.01)
    assert outcome.mantissas == (7, 7, 6, 5) and outcome.within and outcome.exhausted
    tried = [step.mantissas for step in outcome.steps]
    assert tried[:5] == [uniform(4), uniform(5), uniform(6), uniform(7), (7, 7, 6, 7)]
    assert tried.index((7, 7, 6, 5)) + 1 <= 10  # as the paper has it
    accepted = [step.mantissas for step in outcome.steps if step.accepted]
    assert accepted == [uniform(7), (7, 7, 6, 7), (7, 7, 6, 6), (7, 7, 6, 5)]


def reference_search(perplexity, products, tolerance, limit):
    """Algorithm 1 word by word, on lists: everything that is taken is tried, and nothing ends it early."""
    queue, visited, best = [uniform(bits) for bits in STARTS], [], None
    baseline = perplexity(None)
    for _ in range(limit):
        if not queue:
            break
        mantissas = min(queue, key=lambda one: (bops(one, products), one))
        queue.remove(mantissas)
        visited.append(mantissas)
        loss = perplexity(mantissas) / baseline - 1
        if (best is None or bops(mantissas, products) < bops(best, products)) and loss <= tolerance:
            best = mantissas
            queue += [one for one in relaxed(best) if one not in visited and one not in queue]
    return best


problems = st.tuples(
    st.tuples(*[st.floats(0, 300)] * 4), st.tuples(*[st.integers(1, 6)] * 4), st.sampled_from([0.001, 0.01, 0.05])
)


@settings(max_examples=150)
@given(problem=problems, limit=st.integers(1, 40))
def test_ending_early_changes_nothing(problem, limit):
    sensitivities, products, tolerance = problem
    perplexity = additive(*sensitivities)
    expected = reference_search(perplexity, products, tolerance, limit)
    outcome = search(perplexity, products, tolerance, limit=limit)
    assert outcome.mantissas == (expected or uniform(max(STARTS))) and len(outcome.steps) <= limit


@settings(max_examples=100)
@given(problem=problems, noise=st.integers(0, 2**16))
def test_what_is_returned_keeps_to_the_tolerance_or_says_that_it_does_not(problem, noise):
    """Also where more bits do not always mean less loss."""
    sensitivities, products, tolerance = problem
    smooth = additive(*sensitivities)

    def rough(mantissas):
        return smooth(mantissas) if mantissas is None else smooth(mantissas) * (1 + hash((noise, mantissas)) % 7 / 500)

    outcome = search(rough, products, tolerance)
    assert outcome.within == (rough(outcome.mantissas) / 100 - 1 <= tolerance)
    assert outcome.within or outcome.mantissas == uniform(max(STARTS))
    assert outcome.loss == pytest.approx(rough(outcome.mantissas) / 100 - 1)
    for before, after in itertools.pairwise([step for step in outcome.steps if step.accepted]):
        assert after.bops < before.bops


@settings(max_examples=20)
@given(problem=problems)
def test_brute_force_is_never_worse(problem):
    sensitivities, products, tolerance = problem
    perplexity = additive(*(sensitivity / 16 for sensitivity in sensitivities))
    outcome = search(perplexity, products, tolerance, starts=range(4, 8), limit=500)
    optimum = brute_force(perplexity, products, tolerance, least=1, most=7)
    assert optimum.within == outcome.within
    assert not outcome.within or optimum.saving >= outcome.saving


def test_brute_force_is_the_cheapest_of_all():
    perplexity = additive(30, 80, 10, 200)
    optimum = brute_force(perplexity, OPT, 0.02, least=3, most=9)
    within = [
        mantissas for mantissas in itertools.product(range(3, 10), repeat=4) if perplexity(mantissas) / 100 - 1 <= 0.02
    ]
    assert bops(optimum.mantissas, OPT) == min(bops(mantissas, OPT) for mantissas in within)


def test_a_tolerance_that_nothing_meets_gives_the_most_precise():
    for find in (search, brute_force):
        options = {"most": 5} if find is brute_force else {"starts": (4, 5)}
        outcome = find(lambda mantissas: 1.0 if mantissas is None else 3.0, OPT, 0.01, **options)
        assert outcome.mantissas == uniform(5) and not outcome.within and outcome.loss == 2.0


def test_perplexities_beyond_numbers_are_never_accepted():
    outcome = search(lambda mantissas: 1.0 if mantissas in (None, uniform(9)) else math.nan, OPT, 0.01)
    assert outcome.mantissas == uniform(9) and outcome.within


def test_mantissas_end_at_one_bit():
    outcome = search(lambda _: 1.0, OPT, 0.0, limit=200)
    assert outcome.mantissas == uniform(1) and outcome.exhausted
    assert not search(lambda _: 1.0, OPT, 0.0, limit=12).exhausted


def test_every_combination_is_asked_for_once():
    asked = []
    outcome = search(lambda mantissas: asked.append(mantissas) or 1.0, OPT, 0.0)
    # The reference first, the chosen one again at the end.
    assert len(set(asked)) == len(asked) - 1 == 1 + len(outcome.steps)


def test_steps_are_told_as_they_are_made():
    steps = []
    outcome = search(only(6, 6, 6, 6), OPT, 0.01, track=steps.append)
    assert tuple(steps) == outcome.steps and [step.number for step in steps] == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2, 3), 0.01, 32), "products are counted for each of four"),
        (((0, 0, 0, 0), 0.01, 32), "not all are 0"),
        ((OPT, -0.1, 32), "a tolerance is a share of perplexity from 0 on"),
        ((OPT, math.nan, 32), "a tolerance is a share of perplexity from 0 on"),
        ((OPT, 0.01, 0), "at least one iteration"),
    ],
)
def test_what_is_refused(arguments, message):
    products, tolerance, limit = arguments
    with pytest.raises(ValueError, match=message):
        search(lambda _: 1.0, products, tolerance, limit=limit)
