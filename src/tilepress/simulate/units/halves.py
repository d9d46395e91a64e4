"""FP16 values taken apart, as the first stage of every converter does."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]
SIGNIFICAND_BITS, EXPONENT_BITS = 11, 5


@dataclass(frozen=True)
class Fields:
    """Arrays of one shape: sign 0 or 1, exponent field 0 to 30, significand of 11 bits with its hidden bit."""

    sign: Integers
    exponent: Integers
    significand: Integers

    def __getitem__(self, part: slice) -> "Fields":
        return Fields(self.sign[part], self.exponent[part], self.significand[part])


def check(x: Tensor) -> None:
    """Refuse what no unit can take."""
    if x.dtype != torch.float16:
        raise TypeError(f"the unit takes FP16 values, got {x.dtype}: round them first")
    bad = int((~x.isfinite()).sum())
    if bad:
        raise ValueError(f"{bad} of {x.numel()} values are infinite or NaN, which BFP cannot hold; repair the input")


def extract(x: Tensor) -> Fields:
    """Fields of finite FP16 values."""
    check(x)
    bits = bit_patterns(x)
    exponent = bits >> 10 & 0x1F
    return Fields(bits >> 15, exponent, (bits & 0x3FF) | np.where(exponent > 0, 1 << 10, 0))


def bit_patterns(x: Tensor) -> Integers:
    return x.detach().cpu().contiguous().view(torch.int16).numpy().astype(np.int64) & 0xFFFF


def effective(exponent: Integers) -> Integers:
    """What a field scales by: zero and subnormals have the scale of field 1."""
    return np.maximum(exponent, 1)


def unit_power(exponent: int, mantissa: int) -> int:
    """The power of two that magnitude 1 stands for under a shared exponent field."""
    return max(exponent, 1) - 15 - (mantissa - 1)
