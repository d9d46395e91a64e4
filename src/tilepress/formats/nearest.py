"""Rounding to the nearest of a sorted list of values: the plain way, and as thresholds for fast code.

Every format of at most eight bits rounds by this one rule: nearest value, ties to the even rank, beyond the ends
to the end (saturating). In a float the rank is the code, so this is IEEE's round to nearest, ties to even.
"""

import bisect
import math
import struct
from collections.abc import Sequence
from fractions import Fraction


def nearest_rank(values: Sequence[float], x: float) -> int:
    """Rank of the value nearest to `x` in the ascending `values`; the specification."""
    if math.isinf(x):
        return len(values) - 1 if x > 0 else 0
    target, above = Fraction(x), bisect.bisect_left(values, x)
    neighbours = range(max(above - 1, 0), min(above + 1, len(values)))
    return min(neighbours, key=lambda rank: (abs(Fraction(values[rank]) - target), rank % 2))


def float32_thresholds(values: Sequence[float]) -> tuple[float, ...]:
    """For each neighbouring pair of `values`, the smallest float32 that rounds to the upper one.

    The rank of a float32 `x` is then the number of thresholds that are ≤ `x`: one comparison each, no ties left.
    """
    return tuple(_threshold(values[upper - 1], values[upper], upper) for upper in range(1, len(values)))


def _threshold(below: float, above: float, rank_above: int) -> float:
    midpoint = (Fraction(below) + Fraction(above)) / 2
    candidate = _float32_at_most(midpoint)
    tie_goes_up = rank_above % 2 == 0
    if candidate == midpoint and tie_goes_up:
        return candidate
    return _next_float32(candidate)


def _float32_at_most(x: Fraction) -> float:
    rounded = struct.unpack("<f", struct.pack("<f", float(x)))[0]
    while rounded > x:
        rounded = -_next_float32(-rounded)
    while _next_float32(rounded) <= x:
        rounded = _next_float32(rounded)
    return float(rounded)


def _next_float32(x: float) -> float:
    """The float32 just above `x`, itself a float32."""
    if x == 0.0:
        return 2.0**-149
    (bits,) = struct.unpack("<i", struct.pack("<f", x))
    return float(struct.unpack("<f", struct.pack("<i", bits + (1 if bits >= 0 else -1)))[0])
