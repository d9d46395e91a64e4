"""The descriptor of block floating point, without torch; `bfp` has what it stands for, and the arithmetic."""

from dataclasses import dataclass

GROUPS = (16, 32, 64, 128)
MAX_MANTISSA = 16
EXPONENT_BITS = 5


@dataclass(frozen=True)
class BFP:
    """`group` values share an exponent; each has a sign and `mantissa` bits of magnitude."""

    group: int
    mantissa: int

    def __post_init__(self) -> None:
        if type(self.group) is not int or self.group not in GROUPS:
            raise ValueError(f"BFP group must be one of {GROUPS}, got {self.group!r}")
        if type(self.mantissa) is not int or not 1 <= self.mantissa <= MAX_MANTISSA:
            raise ValueError(f"BFP mantissa must be an int from 1 to {MAX_MANTISSA}, got {self.mantissa!r}")

    def __str__(self) -> str:
        return f"bfp:g{self.group}:m{self.mantissa}"

    @property
    def bits_per_value(self) -> float:
        """Bits stored for each value of a full group: sign, magnitude, and its share of the exponent."""
        return 1 + self.mantissa + EXPONENT_BITS / self.group
