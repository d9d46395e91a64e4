"""Units that the papers compare with, as far as their texts define them.

- FP-FP: weights are first scaled to FP16; products of two FP16 numbers join an FP32 sum one after another.
- FP-INT: an FP16 number times an integer joins an FP32 sum one after another; each group's sum is scaled and joins the
  sum of groups.
- FIGNA: FP16 numbers are aligned to the largest exponent of their group, with a mantissa long enough to keep accuracy,
  and multiplied as integers, all bits at once; each group's sum is converted, scaled and joins the sum of groups.

One pair a cycle: a machine that has more lanes divides. The order of sums is ours, the papers give none; and FIGNA's
mantissa is 14 bits in Anda's table I and 13 by its bit operations (1.23 = 16/13): see `docs/units.md`.
"""

from enum import StrEnum
from fractions import Fraction

import numpy as np
from torch import Tensor

from .dot import Dot, Weights
from .events import Counted, check_positive
from .halves import EXPONENT_BITS, SIGNIFICAND_BITS, Fields, Integers, check, effective, extract, unit_power
from .rounding import FP16, FP32, convert, multiply_add, nearest

FIGNA_MANTISSA = 14
FLOAT_BITS, HALF_BITS = 32, 16
SUM_BITS = 32  # FIGNA's accumulator


class Rival(StrEnum):
    fp_fp = "fp-fp"
    fp_int = "fp-int"
    figna = "figna"


_TAILS = {Rival.fp_fp: 1, Rival.fp_int: 1, Rival.figna: 2}  # cycles after the last pair, or before the first


def cycles(unit: Rival, inputs: int) -> int:
    """Of a dot product of `inputs` pairs."""
    check_positive(inputs=inputs)
    return inputs + _TAILS[unit]


class FpFp(Counted):
    """One unit of FP16 numbers, and the converter of weights before it."""

    def dot(self, x: Tensor, weights: Weights) -> Dot:
        """Of FP16 activations [inputs] with one neuron's weights."""
        values, integers, scales = _operands(x, weights, weights.group)
        total = 0.0
        self.cycles += 1  # the first weight is scaled
        for index, (value, weight) in enumerate(zip(values, integers, strict=True)):
            self.cycles += 1
            half = nearest(weight * Fraction(scales[index // weights.group]), FP16)
            total = multiply_add(value, half, total)
            self._count(float_multiplies=2, converts=1, float_adds=1, register_bits=HALF_BITS + FLOAT_BITS)
        return Dot(total, self.cycles, self.events)


class FpInt(Counted):
    """One unit that multiplies an FP16 number with an integer, which gives no more bits than FP32 has."""

    def dot(self, x: Tensor, weights: Weights) -> Dot:
        """Of FP16 activations [inputs] with one neuron's weights."""
        values, integers, scales = _operands(x, weights, weights.group)
        total = partial = 0.0
        for index, (value, weight) in enumerate(zip(values, integers, strict=True)):
            self.cycles += 1
            partial = multiply_add(value, float(weight), partial)
            self._count(float_multiplies=1, float_adds=1, register_bits=FLOAT_BITS)
            if (index + 1) % weights.group == 0 or index + 1 == len(values):
                total, partial = multiply_add(partial, scales[index // weights.group], total), 0.0
                self._count(float_multiplies=1, float_adds=1, register_bits=FLOAT_BITS)
        self.cycles += 1  # the last group is scaled
        return Dot(total, self.cycles, self.events)


class Figna(Counted):
    """One unit that multiplies magnitudes of `mantissa` bits with integers, and the aligner before it."""

    def __init__(self, mantissa: int = FIGNA_MANTISSA, group: int = 64) -> None:
        super().__init__()
        check_positive(mantissa=mantissa, group=group)
        self.mantissa, self.group = mantissa, group

    def dot(self, x: Tensor, weights: Weights) -> Dot:
        """Of FP16 activations [inputs] with one neuron's weights."""
        _, integers, scales = _operands(x, weights, self.group)
        fields, total = extract(x), 0.0
        for first in range(0, len(integers), self.group):
            part = slice(first, first + self.group)
            magnitudes, power = self._aligned(fields[part])
            partial = 0
            for magnitude, weight in zip(magnitudes.tolist(), integers[part], strict=True):
                self.cycles += 1
                partial += magnitude * weight
                self._count(multiplies=1, adds=1, register_bits=SUM_BITS)
            total = multiply_add(convert(partial, power, FP32), scales[first // weights.group], total)
            self._count(converts=1, float_multiplies=1, float_adds=1, register_bits=2 * FLOAT_BITS)
        self.cycles += _TAILS[Rival.figna]  # the last group is converted and scaled
        return Dot(total, self.cycles, self.events)

    def _aligned(self, fields: Fields) -> tuple[Integers, int]:
        """Signed magnitudes, and the power of two that 1 stands for; while the group before is multiplied."""
        shared = fields.exponent.max()
        distance = effective(shared) - effective(fields.exponent)
        widest = fields.significand << self.mantissa
        magnitude = widest >> distance + SIGNIFICAND_BITS
        count = len(magnitude)
        self._count(compares=count, adds=count, shifts=count, register_bits=EXPONENT_BITS)
        return np.where(fields.sign > 0, -magnitude, magnitude), unit_power(int(shared), self.mantissa)


def _operands(x: Tensor, weights: Weights, lanes: int) -> tuple[list[float], list[int], list[float]]:
    check(x)
    integers, _ = weights.cut(len(x), lanes)
    return x.tolist(), integers.ravel()[: len(x)].tolist(), weights.scales.tolist()
