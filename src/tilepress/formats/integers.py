"""Integers of 2 to 8 bits: signed in two's complement, unsigned beside a zero point."""

from dataclasses import dataclass

from .element import Element


@dataclass(frozen=True)
class Integer(Element):
    """`low` to `high` inclusive; a code is the value modulo 2^bits."""

    signed: bool

    @property
    def low(self) -> int:
        return -(self.codes // 2) if self.signed else 0

    @property
    def high(self) -> int:
        return self.low + self.codes - 1

    @property
    def max(self) -> float:
        """The largest positive value; scales map to it, so that signed groups stay symmetric."""
        return float(self.high)

    @property
    def operand_bits(self) -> int:
        return 8

    def encode(self, x: float) -> int:
        self._refuse_nan(x)
        return round(min(max(x, self.low), self.high)) % self.codes

    def decode(self, code: int) -> float:
        self.check_code(code)
        return float((code - self.low) % self.codes + self.low)


SIGNED = tuple(Integer(f"int{bits}", bits, True) for bits in range(2, 9))
UNSIGNED = tuple(Integer(f"uint{bits}", bits, False) for bits in range(2, 9))
