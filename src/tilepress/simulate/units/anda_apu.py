"""Anda's processing unit: the dot product of 64 activations in bit planes with integer weights, a plane a cycle.

A group comes as 1 + m words. The first puts signs and exponent into registers; by then the weights stand in theirs,
loaded beside the group before. Of every later word, each bit lets its weight pass, with the activation's sign; an
adder tree sums the 64, and one accumulator is doubled and takes the sum: elements first, then bit planes. Three stages
follow, a group at a time, while the next group comes in: conversion to floating point by the shared exponent,
multiplication by the scale of the weights, addition to the FP32 sum of all groups; the latter two round once.

The paper converts each group's sum to FP16, whose 11 bits are fewer than a sum can have. That is `"fp16"` here,
at most 65504; the default `"fp32"` is what our kernels compute: `kernels.linear` with activations in bfp:g64:mM, to the
bit, over a span of 2048 inputs.
"""

import numpy as np

from ...formats.bfp import BitPlanes
from .dot import WEIGHT_BITS, Dot, Weights
from .events import Counted, Events, check_positive
from .halves import EXPONENT_BITS, Integers, unit_power
from .rounding import WIDTHS, Intermediate, convert, multiply_add

LANES = 64
SUM_BITS = WEIGHT_BITS + 6 + 16  # of 64 products of a weight with its sign and a mantissa of 16 bits
TAIL = 3  # cycles after a group's last plane: converted, scaled, accumulated
FLOAT_BITS = 32


def cycles_per_group(mantissa: int) -> int:
    """The word of signs, then one of each magnitude bit."""
    return 1 + mantissa


def cycles(groups: int, mantissa: int) -> int:
    """From the first word of `groups` groups to their sum."""
    check_positive(groups=groups, mantissa=mantissa)
    return groups * cycles_per_group(mantissa) + TAIL


def events(groups: int, mantissa: int) -> Events:
    """Of `groups` groups, whatever their values."""
    registers = LANES + EXPONENT_BITS + LANES * WEIGHT_BITS + mantissa * SUM_BITS + TAIL * FLOAT_BITS
    group = Events(
        plane_adds=mantissa * (LANES - 1),
        adds=mantissa,
        shifts=mantissa,
        register_bits=registers,
        converts=1,
        float_multiplies=1,
        float_adds=1,
    )
    return group.times(groups)


class Apu(Counted):
    """One unit. `dot` runs its clock until the sum of all groups stands."""

    def __init__(self, mantissa: int, intermediate: Intermediate = "fp32") -> None:
        super().__init__()
        check_positive(mantissa=mantissa)
        self.mantissa, self.width = mantissa, WIDTHS[intermediate]
        self._sign = self._weights = np.zeros(LANES, np.int64)
        self._exponent, self._sum, self._planes, self._total, self._scale = 0, 0, 0, 0.0, 0.0
        self._summed: tuple[int, int, float] | None = None  # a group's sum, its power of two, the weights' scale
        self._converted: tuple[float, float] | None = None
        self._scaled: tuple[float, float] | None = None

    def dot(self, activations: BitPlanes, weights: Weights) -> Dot:
        """Of one row of activations, [inputs] in groups of 64."""
        _check_row(activations, self.mantissa)
        integers, scales = weights.cut(activations.shape[0], LANES)
        exponents = activations.exponent.tolist()
        for planes, exponent, group, scale in zip(activations.planes.numpy(), exponents, integers, scales, strict=True):
            self._load(group, scale)
            for word in np.unpackbits(planes, axis=-1, bitorder="little").astype(np.int64):
                self._clock(word, exponent)
        while self._summed or self._converted or self._scaled:
            self._clock(None, 0)
        return Dot(self._total, self.cycles, self.events)

    def _load(self, weights: Integers, scale: float) -> None:
        """The other half of the double buffer becomes the one that is multiplied with."""
        self._weights, self._scale = weights, scale
        self._count(register_bits=LANES * WEIGHT_BITS)

    def _clock(self, word: Integers | None, exponent: int) -> None:
        """One cycle; the last stage first, so that each takes what was in its register before."""
        self.cycles += 1
        if self._scaled:
            self._total = multiply_add(*self._scaled, self._total)
            self._count(float_multiplies=1, float_adds=1, register_bits=FLOAT_BITS)
        self._scaled = self._converted  # the product stays exact: it is rounded with the sum
        self._count(register_bits=FLOAT_BITS * (self._converted is not None))
        self._converted = self._convert()
        self._summed = None
        if word is not None:
            self._take(word, exponent)

    def _convert(self) -> tuple[float, float] | None:
        if self._summed is None:
            return None
        total, power, scale = self._summed
        self._count(converts=1, register_bits=FLOAT_BITS)
        return convert(total, power, self.width), scale

    def _take(self, word: Integers, exponent: int) -> None:
        if not self._planes:
            self._sign, self._exponent, self._sum, self._planes = word, exponent, 0, self.mantissa
            self._count(register_bits=LANES + EXPONENT_BITS)
            return
        passed = np.where(word > 0, np.where(self._sign > 0, -self._weights, self._weights), 0)
        self._sum = 2 * self._sum + self._tree(passed)
        assert -(1 << SUM_BITS - 1) <= self._sum < 1 << SUM_BITS - 1
        self._count(adds=1, shifts=1, register_bits=SUM_BITS)
        self._planes -= 1
        if not self._planes:
            self._summed = self._sum, unit_power(self._exponent, self.mantissa), self._scale

    def _tree(self, values: Integers) -> int:
        while len(values) > 1:
            self._count(plane_adds=len(values) // 2)
            values = values[::2] + values[1::2]
        return int(values[0])


def _check_row(activations: BitPlanes, mantissa: int) -> None:
    format = activations.format
    if format.group != LANES or format.mantissa != mantissa or len(activations.shape) != 1 or not activations.shape[0]:
        raise ValueError(
            f"the unit is set up for a row of activations in bfp:g{LANES}:m{mantissa}, not {list(activations.shape)} "
            f"in {format}"
        )
