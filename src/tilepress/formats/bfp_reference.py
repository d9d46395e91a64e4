"""Block floating point, one group of Python numbers at a time: the specification `bfp` is tested against.

Written to be read, not to be fast. A group is at most g floats; what it misses is sign 0 and magnitude 0.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from tilepress.formats.bfp import BFP, Nonfinite


@dataclass(frozen=True)
class Group:
    """One encoded group: a shared FP16 exponent field, g sign bits and g magnitudes of m bits."""

    exponent: int
    signs: list[int]
    magnitudes: list[int]
    overflowed: int = 0


def encode_group(values: list[float], format: BFP, nonfinite: Nonfinite = "error") -> Group:
    """Encode at most g values."""
    if len(values) > format.group:
        raise ValueError(f"a group of {format} holds {format.group} values, got {len(values)}")
    halves = [split_half(saturate(value, nonfinite)) for value in values]
    halves += [(0, 0, 0)] * (format.group - len(values))
    exponent = max(field for _, field, _ in halves)
    return Group(
        exponent=exponent,
        signs=[sign for sign, _, _ in halves],
        magnitudes=[align(field, fraction, exponent, format.mantissa) for _, field, fraction in halves],
        overflowed=sum(math.isnan(value) or rounds_to_infinity(value) for value in values),
    )


def decode_group(group: Group, format: BFP) -> list[float]:
    """The g values a group stands for, exactly."""
    power = effective(group.exponent) - 15 - (format.mantissa - 1)
    return [
        math.ldexp(-float(magnitude) if sign else float(magnitude), power)
        for sign, magnitude in zip(group.signs, group.magnitudes, strict=True)
    ]


def pack_group(group: Group, format: BFP) -> list[bytes]:
    """Bit planes: the sign word, then m mantissa words, most significant first; value i has bit i of each."""
    words = [word(group.signs)]
    for place in reversed(range(format.mantissa)):
        words.append(word([(magnitude >> place) & 1 for magnitude in group.magnitudes]))
    return words


def saturate(value: float, nonfinite: Nonfinite) -> float:
    """Bring a value into FP16's range."""
    if not math.isfinite(value) and nonfinite == "error":
        raise ValueError(f"{value} is infinite or NaN, which BFP cannot hold")
    if math.isnan(value):
        return 0.0
    return math.copysign(65504.0, value) if rounds_to_infinity(value) else value


def rounds_to_infinity(value: float) -> bool:
    """Whether FP16 overflows: 65520, halfway from its largest to the 65536 it lacks, is a tie and goes up."""
    return abs(value) >= 65520.0


def split_half(value: float) -> tuple[int, int, int]:
    """Sign, exponent field and fraction of a value rounded to FP16, to nearest with ties to even."""
    (bits,) = struct.unpack("<H", struct.pack("<e", value))
    return bits >> 15, (bits >> 10) & 0b11111, bits & 0b11_1111_1111


def effective(field: int) -> int:
    """The exponent a field scales by: subnormals (field 0) have the scale of field 1."""
    return max(field, 1)


def align(field: int, fraction: int, exponent: int, mantissa: int) -> int:
    """The m-bit magnitude of one FP16 value under a shared exponent: shifted right and truncated."""
    hidden = 1 if field > 0 else 0
    significand = hidden * 1024 + fraction  # 11 bits
    lag = effective(exponent) - effective(field)
    return (significand << mantissa) // (1 << (11 + lag))


def word(bits: list[int]) -> bytes:
    """g bits as g/8 bytes, little-endian."""
    return sum(bit << i for i, bit in enumerate(bits)).to_bytes(len(bits) // 8, "little")
