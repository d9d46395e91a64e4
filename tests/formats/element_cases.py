"""Cases for element formats, and what other libraries say of every float."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tilepress.formats import BF8, BF16, E2M1, E2M3, E3M2, E4M3, FP16, Float

ML_DTYPES = {
    BF16: "bfloat16",
    BF8: "float8_e5m2",
    E4M3: "float8_e4m3fn",
    E3M2: "float6_e3m2fn",
    E2M3: "float6_e2m3fn",
    E2M1: "float4_e2m1fn",
}
TORCH_DTYPES = {
    BF16: torch.bfloat16,
    FP16: torch.float16,
    BF8: torch.float8_e5m2,
    E4M3: torch.float8_e4m3fn,
}
# Stated apart from the sources, from OCP's and IEEE's tables: largest value, least normal, least subnormal.
LIMITS = {
    BF16: ((2 - 2**-7) * 2.0**127, 2.0**-126, 2.0**-133),
    FP16: (65504.0, 2.0**-14, 2.0**-24),
    BF8: (57344.0, 2.0**-14, 2.0**-16),
    E4M3: (448.0, 2.0**-6, 2.0**-9),
    E3M2: (28.0, 0.25, 0.0625),
    E2M3: (7.5, 1.0, 0.125),
    E2M1: (6.0, 1.0, 0.5),
}
float32s = st.floats(allow_nan=False, allow_infinity=False, width=32)
distinct = st.lists(float32s, min_size=1, max_size=24).map(lambda values: sorted({v + 0.0 for v in values}))


def numpy_dtype(element: Float) -> np.dtype:
    """The dtype of numpy or ml_dtypes that is the outside word on a float format."""
    if element is FP16:
        return np.dtype(np.float16)
    return np.dtype(getattr(pytest.importorskip("ml_dtypes"), ML_DTYPES[element]))


def code_dtype(element: Float) -> type:
    return np.uint16 if element.bits == 16 else np.uint8


def numpy_values(element: Float) -> np.ndarray:
    """The outside word on every code, as float32."""
    codes = np.arange(element.codes).astype(code_dtype(element))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return codes.view(numpy_dtype(element)).astype(np.float32)


def finite_magnitudes(element: Float) -> np.ndarray:
    """The outside word's non-negative finite values, float32, ascending."""
    values = numpy_values(element)[: element.codes // 2]
    return values[np.isfinite(values)]


def rounding_cases(element: Float) -> np.ndarray:
    """Float32s up to the largest value, of both signs: all values, midpoints, and the float32s beside those.

    Of the 16-bit formats a seventh of the values, and all that are near an end.
    """
    values = finite_magnitudes(element)
    lower, upper = values[:-1], values[1:]
    if element.bits == 16:
        keep = np.unique(np.r_[0:300, 0 : len(lower) : 7, len(lower) - 300 : len(lower)])
        lower, upper = lower[keep], upper[keep]
    middles = lower + (upper - lower) / 2
    assert ((middles.astype(np.float64) * 2) == lower.astype(np.float64) + upper).all()
    below, above = np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf))
    cases = np.concatenate([lower, upper, middles, below, above])
    return np.concatenate([cases, -cases])


def random_cases(element: Float, count: int = 2000) -> np.ndarray:
    """Float32s within the format's range: even over values, over exponents, and among its subnormals."""
    rng = np.random.default_rng(element.bits)
    largest, _, least = LIMITS[element]
    even = rng.uniform(-1, 1, count) * largest
    scaled = rng.choice([-1, 1], count) * 2 ** rng.uniform(math.log2(least) - 4, math.log2(largest), count)
    small = rng.uniform(-8, 8, count) * least
    cases = np.concatenate([even, scaled, small, [0.0, -0.0, 2.0**-149, -(2.0**-149)]])
    return np.clip(cases, -largest, largest).astype(np.float32)


def same_value(a: float, b: float) -> bool:
    """Equal, with -0.0 distinct from 0.0 and every NaN alike."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def all_values(element) -> list[float]:
    return [element.decode(code) for code in range(element.codes)]


def brute_force_code(values, x: float) -> int:
    """The nearest of all values; of two as near the one of even rank among the distinct; its first code."""
    ranks = sorted(set(values))
    if math.isinf(x):
        return values.index(ranks[-1] if x > 0 else ranks[0])
    distances = [abs(Fraction(value) - Fraction(x)) for value in ranks]
    nearest = [rank for rank, distance in enumerate(distances) if distance == min(distances)]
    if len(nearest) == 2:
        nearest = [rank for rank in nearest if rank % 2 == 0]
    (rank,) = nearest
    return values.index(ranks[rank])
