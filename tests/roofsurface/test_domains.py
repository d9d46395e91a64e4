import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilepress.roofsurface import MATRIX, MEMORY, VECTOR, bord, bound, bounds

RATES = {MEMORY: 850e9, VECTOR: 280e9, MATRIX: 8.75e9}
positive = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=6))
def test_the_slowest_of_any_number_of_domains_binds(pairs):
    rates = {f"domain {n}": rate for n, (rate, _) in enumerate(pairs)}
    demands = {f"domain {n}": demand for n, (_, demand) in enumerate(pairs)}
    result = bound(rates, demands)
    assert result.rate == min(rate / demand for rate, demand in pairs)
    assert all(result.rate <= limit for limit in result.limits.values())
    if len(pairs) > 1:
        relieved = bound(rates | {result.binding: rates[result.binding] * result.headroom * 1.01}, demands)
        assert relieved.rate == pytest.approx(result.limits[result.runner_up], rel=1e-9)


def test_what_asks_nothing_is_not_limited():
    assert bound(RATES, {MEMORY: 1024.0, VECTOR: 0.0}).binding == MEMORY
    assert bound(RATES, {MEMORY: 1024.0}).runner_up is None
    with pytest.raises(ValueError, match="how fast the machine is in tensor cores"):
        bound(RATES, {"tensor cores": 1.0})


def test_many_at_once_are_each_alone():
    generator = np.random.default_rng(0)
    demands = {MEMORY: generator.uniform(20, 600, (50, 1)), VECTOR: generator.uniform(4, 200, 40), MATRIX: np.ones(1)}
    rates, binding, domains = bounds(RATES, demands)
    assert rates.shape == (50, 40)
    for i, j in np.ndindex(rates.shape):
        alone = bound(RATES, {MEMORY: demands[MEMORY][i, 0], VECTOR: demands[VECTOR][j], MATRIX: 1.0})
        assert (alone.rate, alone.binding) == (rates[i, j], domains[binding[i, j]])


@given(st.floats(1, 4096), st.floats(0.5, 1024))
def test_the_diagram_parts_the_regions_as_the_surface_does(bytes, operations):
    lines = bord(RATES)
    assert lines.slope == RATES[MEMORY] / RATES[VECTOR]
    assert lines.right == RATES[MATRIX] / RATES[MEMORY] and lines.top == RATES[MATRIX] / RATES[VECTOR]
    result = bound(RATES, {MEMORY: bytes, VECTOR: operations, MATRIX: 1.0})
    if result.headroom > 1 + 1e-9:
        assert lines.region(1 / bytes, 1 / operations) == result.binding
