"""Exact rounding against numpy's and torch's own."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tilepress.kernels.reference import fused_multiply_add
from tilepress.simulate.units.rounding import FP16, FP32, convert, multiply_add, nearest

doubles = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(-70000, 70000), st.floats(-1e-4, 1e-4))
singles = st.floats(-(2.0**60), 2.0**60, width=32)


@given(doubles)
@example(1.7972542449368124e308)
@example(65520.0)
@example(65519.99)
@example(2.0**-25)
@example(-(2.0**-25) - 2.0**-50)
@example(1 + 2.0**-11)
def test_nearest_is_a_cast(value):
    for width, type in ((FP16, np.float16), (FP32, np.float32)):
        with np.errstate(over="ignore", under="ignore"):
            expected = float(type(value))
        result = nearest(Fraction(value), width)
        assert result == expected and (not value or math.copysign(1, result) == math.copysign(1, expected))


@given(st.integers(-(2**11), 2**11), st.integers(1, 2**11))
def test_nearest_of_a_quotient_is_a_cast(numerator, denominator):
    """Of integers so small that float64's own rounding brings no quotient to a tie of FP16."""
    assert nearest(Fraction(numerator, denominator), FP16) == float(np.float16(numerator / denominator))


@given(singles, singles, singles)
def test_multiply_add_is_rounded_once(a, b, c):
    exact = fused_multiply_add(*(torch.tensor([x], dtype=torch.float32) for x in (a, b, c)))
    assert multiply_add(a, b, c) == float(exact)


def test_what_is_infinite_stays_so():
    assert multiply_add(2.0**127, 2.0, 0.0) == math.inf
    assert multiply_add(1.0, 1.0, -math.inf) == -math.inf


@pytest.mark.parametrize("integer, power, expected", [(3, -1, 1.5), (-1, 20, -65504.0), (4097, 0, 4096.0), (0, 9, 0.0)])
def test_conversion_stays_within_fp16(integer, power, expected):
    assert convert(integer, power, FP16) == expected
