"""Choices within a budget, beside all that there are."""

import math
import random
from itertools import pairwise, product

import pytest

from tilepress.compression.allocate import BudgetError, Candidate, allocate, lower_hull


def random_layers(seed, layers=5, choices=4):
    """Losses mostly fall with size, as they do; now and then they do not."""
    numbers = random.Random(seed)
    scales = [10 ** numbers.uniform(-2, 2) for _ in range(layers)]
    return [
        [
            Candidate(size := numbers.randrange(10, 100), scale * numbers.uniform(0.5, 2) * 2 ** (-size / 12))
            for _ in range(choices)
        ]
        for scale in scales
    ]


def brute_force(layers, budget):
    """The least loss within the budget."""
    fitting = (chosen for chosen in product(*layers) if sum(one.nbytes for one in chosen) <= budget)
    return min(math.fsum(one.loss for one in chosen) for chosen in fitting)


def budgets(layers):
    least = sum(min(one.nbytes for one in candidates) for candidates in layers)
    most = sum(max(one.nbytes for one in candidates) for candidates in layers)
    return [least, least + 1, *(least + (most - least) * part // 8 for part in range(1, 8)), most, 2 * most]


def largest_step(layers):
    hulls = [(one, lower_hull(one)) for one in layers]
    return max((one[a].loss - one[b].loss for one, hull in hulls for a, b in pairwise(hull)), default=0)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_near_the_best_of_all(seed):
    layers = random_layers(seed)
    for budget in budgets(layers):
        result, best = allocate(layers, budget), brute_force(layers, budget)
        chosen = [candidates[index] for candidates, index in zip(layers, result.chosen, strict=True)]
        assert result.nbytes == sum(one.nbytes for one in chosen) <= budget == result.budget
        assert result.loss == pytest.approx(math.fsum(one.loss for one in chosen), rel=1e-12)
        assert result.bound <= best * (1 + 1e-9) and best <= result.loss * (1 + 1e-9)
        assert result.loss <= best + largest_step(layers)


def test_on_average_little_is_lost():
    layers = [random_layers(seed) for seed in range(40)]
    ratios = [allocate(one, budget).loss / brute_force(one, budget) for one in layers for budget in budgets(one)]
    assert sum(ratios) / len(ratios) < 1.03 and sum(ratio < 1 + 1e-9 for ratio in ratios) > 0.75 * len(ratios)


def test_many_layers_leave_hardly_a_gap():
    layers = random_layers(0, layers=300)
    for budget in budgets(layers)[2:-2]:
        result = allocate(layers, budget)
        assert result.loss < 1.002 * result.bound


def test_all_that_fits_is_the_best_of_each():
    layers = random_layers(1)
    result = allocate(layers, 10_000)
    assert result.loss == result.bound == math.fsum(min(one.loss for one in candidates) for candidates in layers)


def test_a_budget_too_small_says_how_much_there_must_be():
    layers = [[Candidate(10, 1.0), Candidate(20, 0.5)], [Candidate(7, 1.0)]]
    with pytest.raises(
        BudgetError, match="a budget of 16 bytes is too small: the smallest candidates take 17"
    ) as error:
        allocate(layers, 16)
    assert error.value.least == 17 and allocate(layers, 17).chosen == [0, 0]


def test_a_hull_has_what_a_multiplier_would_choose():
    sizes_and_losses = [(30, 1.0), (10, 9.0), (20, 6.0), (40, 1.5), (10, 10.0), (50, 0.0)]
    candidates = [Candidate(*one) for one in sizes_and_losses]
    assert lower_hull(candidates) == [1, 0, 5]  # 20 bytes are above the line from 10 to 30


def test_what_is_left_pays_for_candidates_off_the_hull():
    layers = [[Candidate(10, 9.0), Candidate(20, 6.0), Candidate(30, 1.0)]]
    assert allocate(layers, 25).chosen == [1] and allocate(layers, 30).chosen == [2]


def test_losses_that_are_not_finite_are_never_taken():
    bad = [Candidate(1, math.nan), Candidate(2, math.inf)]
    assert allocate([[*bad, Candidate(5, 1.0)]], 5).chosen == [2]
    with pytest.raises(ValueError, match="no candidate with a finite loss"):
        allocate([bad], 100)
