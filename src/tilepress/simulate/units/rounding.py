"""Floating point of hardware: exact numbers, rounded once, to nearest with ties to even.

A Python float holds every FP16 and FP32 number. Exact sums, products and quotients are fractions.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Intermediate = Literal["fp32", "fp16"]  # what a group's sum becomes before it is scaled and accumulated


@dataclass(frozen=True)
class Width:
    """`bits` of significand, hidden bit included; the exponent of the smallest normal number; the largest number."""

    bits: int
    least: int
    largest: float


FP16 = Width(11, -14, 65504.0)
FP32 = Width(24, -126, (2 - 2.0**-23) * 2.0**127)
WIDTHS: dict[Intermediate, Width] = {"fp32": FP32, "fp16": FP16}


def nearest(value: Fraction, width: Width) -> float:
    """`value` in `width`; infinite where it rounds past the largest."""
    exponent = _exponent(abs(value.numerator), value.denominator)
    unit = Fraction(2) ** (max(exponent, width.least) - width.bits + 1)
    rounded = round(value / unit) * unit
    size = math.inf if abs(rounded) > width.largest else float(abs(rounded))
    return -size if value < 0 else size


def _exponent(numerator: int, denominator: int) -> int:
    """Of the largest power of two that is not above their quotient; of zero it means nothing."""
    exponent = numerator.bit_length() - denominator.bit_length()
    return exponent - (numerator << max(-exponent, 0) < denominator << max(exponent, 0))


def multiply_add(a: float, b: float, c: float, width: Width = FP32) -> float:
    """a · b + c, rounded once to `width`; what is infinite stays so."""
    if math.isinf(c):
        return c
    return nearest(Fraction(a) * Fraction(b) + Fraction(c), width)


def convert(integer: int, power: int, width: Width) -> float:
    """integer · 2^power in `width`, at most its largest number."""
    rounded = nearest(integer * Fraction(2) ** power, width)
    return max(-width.largest, min(rounded, width.largest))
