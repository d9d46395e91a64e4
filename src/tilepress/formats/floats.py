"""Floats of 4 to 16 bits: sign, exponent, mantissa."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from .element import Element
from .nearest import nearest_rank

Specials = Literal["ieee", "nan", "none"]


@dataclass(frozen=True)
class Float(Element):
    """A sign bit, `exponent_bits` biased by 2^(e-1) - 1, and `mantissa_bits`; subnormals included.

    `specials`: "ieee" gives the top exponent to infinity and NaN, "nan" only the top code of each sign to NaN
    (OCP's E4M3), "none" makes every code a number (OCP's six- and four-bit formats).
    """

    exponent_bits: int
    mantissa_bits: int
    specials: Specials

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def operand_bits(self) -> int:
        return 16

    @cached_property
    def magnitudes(self) -> tuple[float, ...]:
        """The finite non-negative values, ascending; rank and code are the same here."""
        codes = range(1 << (self.bits - 1))
        return tuple(value for value in map(self._magnitude, codes) if math.isfinite(value))

    @property
    def max(self) -> float:
        return self.magnitudes[-1]

    def encode(self, x: float) -> int:
        sign = self.codes // 2 if math.copysign(1.0, x) < 0 else 0
        if math.isnan(x):
            return sign | self._nan_code(x)
        return sign | nearest_rank(self.magnitudes, abs(x))

    def decode(self, code: int) -> float:
        self.check_code(code)
        sign, magnitude = divmod(code, self.codes // 2)
        return math.copysign(self._magnitude(magnitude), -1.0 if sign else 1.0)

    def _magnitude(self, code: int) -> float:
        exponent, mantissa = divmod(code, 1 << self.mantissa_bits)
        top = (1 << self.exponent_bits) - 1
        if self.specials == "ieee" and exponent == top:
            return math.nan if mantissa else math.inf
        if self.specials == "nan" and code == self.codes // 2 - 1:
            return math.nan
        hidden = (1 << self.mantissa_bits) if exponent else 0
        return math.ldexp(hidden + mantissa, max(exponent, 1) - self.bias - self.mantissa_bits)

    def _nan_code(self, x: float) -> int:
        """Quiet NaN: all ones under "nan", the highest mantissa bit alone under "ieee"."""
        if self.specials == "none":
            self._refuse_nan(x)
        if self.specials == "nan":
            return self.codes // 2 - 1
        return len(self.magnitudes) + (1 << (self.mantissa_bits - 1))


def _float(name: str, exponent_bits: int, mantissa_bits: int, specials: Specials) -> Float:
    return Float(name, 1 + exponent_bits + mantissa_bits, exponent_bits, mantissa_bits, specials)


BF16 = _float("bf16", 8, 7, "ieee")
FP16 = _float("fp16", 5, 10, "ieee")
BF8 = _float("bf8", 5, 2, "ieee")
E4M3 = _float("e4m3", 4, 3, "nan")
E3M2 = _float("e3m2", 3, 2, "none")
E2M3 = _float("e2m3", 2, 3, "none")
E2M1 = _float("e2m1", 2, 1, "none")
FLOATS = (BF16, FP16, BF8, E4M3, E3M2, E2M3, E2M1)
