"""Rounding to the nearest of a list, and the thresholds that do it in float32."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.formats.element_cases import brute_force_code, distinct, float32s, numpy_dtype, random_cases, rounding_cases
from tilepress.formats import BF8, E2M1, E2M3, E3M2, E4M3
from tilepress.formats.nearest import float32_thresholds, nearest_rank


@settings(max_examples=200)
@given(distinct, st.floats(allow_nan=False))
def test_nearest_rank_is_nearest(values, x):
    assert nearest_rank(values, x) == brute_force_code(values, x)


@pytest.mark.parametrize(("x", "rank"), [(0.5, 0), (1.5, 2), (2.5, 2), (-9.0, 0), (9.0, 3), (1.4, 1)])
def test_nearest_rank_by_hand(x, rank):
    assert nearest_rank([0.0, 1.0, 2.0, 3.0], x) == rank


def float32_neighbours(x: float) -> list[float]:
    """`x` and the float32s just below and above it."""
    x = np.float32(x)
    with np.errstate(over="ignore", under="ignore"):
        return [
            float(np.nextafter(x, np.float32(-np.inf))),
            float(x),
            float(np.nextafter(x, np.float32(np.inf))),
        ]


@settings(max_examples=200)
@given(distinct, st.lists(float32s, max_size=8))
@example([-(2.0**-149), 0.0, 2.0**-149, 2.0**-148], [0.0, -0.0])
@example([-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max)], [])
@example([0.0, 1.0, 2.0, 3.0], [0.5, 1.5, 2.5])
def test_thresholds_count_the_rank(values, points):
    thresholds = float32_thresholds(values)
    assert len(thresholds) == len(values) - 1
    assert thresholds == tuple(np.array(thresholds, np.float32).tolist())
    for x in [*points, *(near for threshold in thresholds for near in float32_neighbours(threshold))]:
        assert sum(threshold <= x for threshold in thresholds) == nearest_rank(values, x)


@pytest.mark.parametrize("element", [BF8, E4M3, E3M2, E2M3, E2M1], ids=str)
def test_thresholds_of_floats_count_the_code(element):
    thresholds = np.array(float32_thresholds(element.magnitudes), np.float32)
    x = np.abs(np.concatenate([rounding_cases(element), random_cases(element)]))
    expected = x.astype(numpy_dtype(element)).view(np.uint8)
    assert np.searchsorted(thresholds, x, side="right").tolist() == expected.tolist()
