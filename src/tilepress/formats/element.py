"""What every element format has: a code of a few bits and the value each code stands for."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Element(ABC):
    """A number format for one value. `encode` and `decode` are plain scalar code: the specification.

    Rounding is to nearest, ties to even, and saturates: finite overflow and infinities go to the largest finite
    value of their sign. NaN keeps its meaning where the format has a NaN and is refused where it has none.
    """

    name: str
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def codes(self) -> int:
        """How many codes there are."""
        return 1 << self.bits

    @property
    @abstractmethod
    def max(self) -> float:
        """The largest finite magnitude: what the largest value of a scaled group maps to."""

    @property
    def emax(self) -> int:
        """Exponent of the largest power of two at most `max`: what OCP MX scales subtract."""
        return math.frexp(self.max)[1] - 1

    @property
    @abstractmethod
    def operand_bits(self) -> int:
        """Width of the operand that arithmetic takes a decoded value in: 8 for integers, else 16."""

    @abstractmethod
    def encode(self, x: float) -> int:
        """The code nearest to `x`."""

    @abstractmethod
    def decode(self, code: int) -> float:
        """The value of `code`."""

    def check_code(self, code: int) -> None:
        """ValueError unless `code` is one of the format's."""
        if not 0 <= code < self.codes:
            raise ValueError(f"{self.name} has codes 0 to {self.codes - 1}, not {code}")

    def _refuse_nan(self, x: float) -> None:
        if math.isnan(x):
            raise ValueError(f"{self.name} has no NaN to encode")
