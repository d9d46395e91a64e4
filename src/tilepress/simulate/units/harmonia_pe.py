"""Harmonia's processing element: dot products of 32 pairs, of eight-bit magnitudes with weights or other magnitudes.

Two wrappers hold two sub-PEs each; a sub-PE multiplies 32 pairs of an eight-bit and a four-bit magnitude, with signs,
and sums them: eight pairs a cycle, in four cycles. In M8W4 and M8M4 each sub-PE has a group of its own; in M8M8 a group
takes two, one of each wrapper: for the high and the low four bits of the second magnitude. The accumulator is both
wrappers': while sub-PEs go on with the next round, it takes one sum a cycle, joining the two halves of M8M8 into one;
then, a stage a cycle, it converts to floating point by the sum of both exponents, multiplies by the weights' scale
(M8W4 only) and adds to the FP32 sum of all groups.

So 128 products take four cycles, and 64 of M8M8 as many: the rates that the paper's GOPS/W and W give. Modes may change
from group to group, as they do where tokens of eight and of four bits meet in a cache; a round has one.

The paper converts each group's sum to FP16: `"fp16"` here, at most 65504. The default `"fp32"` is what our
kernels compute, to the bit: `kernels.linear` over a span of 2048 inputs, and both products of `kernels.kv_store`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

import numpy as np

from ...formats.bfp import BFPTensor
from .dot import WEIGHT_BITS, Dot, Weights
from .events import Counted, Events
from .halves import EXPONENT_BITS, Integers, unit_power
from .rounding import WIDTHS, Intermediate, convert, multiply_add

PAIRS = 32
SUB_PES = 4
LANES = 8  # of a sub-PE
ROUND = PAIRS // LANES  # cycles
HALF_BITS, WHOLE_BITS = 4, 8
SUM_BITS = 1 + WHOLE_BITS + HALF_BITS + 5
FUSED_BITS = SUM_BITS + HALF_BITS
FLOAT_BITS = 32
TAIL = 2  # cycles after the accumulator took the last sum: scaling and adding


class Mode(StrEnum):
    m8w4 = "m8w4"
    m8m4 = "m8m4"
    m8m8 = "m8m8"


_OPERAND_BITS = {  # of the second operand of a group, as registers hold it
    Mode.m8w4: PAIRS * WEIGHT_BITS,
    Mode.m8m4: PAIRS * (1 + HALF_BITS) + EXPONENT_BITS,
    Mode.m8m8: PAIRS * (1 + WHOLE_BITS) + EXPONENT_BITS,
}


@dataclass(frozen=True, eq=False)
class Pair:
    """A group: signed magnitudes int64 [32] of both sides, of which a product of 1 stands for 2^power · scale."""

    mode: Mode
    left: Integers
    right: Integers
    power: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check("first", self.left, WHOLE_BITS)
        _check("second", self.right, WHOLE_BITS if self.mode is Mode.m8m8 else HALF_BITS)


def sums_per_group(mode: Mode) -> int:
    """Sub-PEs that a group takes, and sums that the accumulator takes of it."""
    return 2 if mode is Mode.m8m8 else 1


def groups_per_round(mode: Mode) -> int:
    """Groups that all sub-PEs multiply in ROUND cycles."""
    return SUB_PES // sums_per_group(mode)


def rounds(modes: Sequence[Mode]) -> list[tuple[Mode, int]]:
    """How groups, each in its mode, fall into rounds: the mode of each, and how many groups it has."""
    in_rounds = []
    for mode, run in groupby(modes):
        count, most = len(list(run)), groups_per_round(mode)
        in_rounds += [(mode, min(most, count - first)) for first in range(0, count, most)]
    return in_rounds


def cycles(modes: Sequence[Mode]) -> int:
    """From the operands of one group after another, each in its mode, to their sum."""
    if not modes:
        raise ValueError("a dot product wants at least one group")
    in_rounds = rounds(modes)
    mode, groups = in_rounds[-1]
    return ROUND * len(in_rounds) + groups * sums_per_group(mode) + TAIL


def group_events(mode: Mode) -> Events:
    """Of one group, whatever its values."""
    halves, is_fused = sums_per_group(mode), mode is Mode.m8m8
    operands = PAIRS * (1 + WHOLE_BITS) + EXPONENT_BITS + _OPERAND_BITS[mode]
    registers = operands + halves * ROUND * SUM_BITS + is_fused * FUSED_BITS + (1 + TAIL) * FLOAT_BITS
    return Events(
        multiplies=halves * PAIRS,
        adds=halves * PAIRS + is_fused,
        shifts=int(is_fused),
        register_bits=registers,
        converts=1,
        float_multiplies=int(mode is Mode.m8w4),
        float_adds=1,
    )


def linear_pairs(activations: BFPTensor, weights: Weights) -> list[Pair]:
    """M8W4: one row of activations [inputs] in groups of 32 with one neuron's weights."""
    left = _signed(activations)
    integers, scales = weights.cut(activations.shape[0], PAIRS)
    powers = _powers(activations)
    return [Pair(Mode.m8w4, *one) for one in zip(left, integers, powers, scales, strict=True)]


def attention_pairs(first: BFPTensor, second: BFPTensor) -> list[Pair]:
    """M8M4 or M8M8, as the second has four bits or fewer, or more: two rows in groups of 32."""
    if first.shape != second.shape:
        raise ValueError(f"{list(first.shape)} activations meet {list(second.shape)}: they must be as many")
    mode = Mode.m8m4 if second.format.mantissa <= HALF_BITS else Mode.m8m8
    powers = [a + b for a, b in zip(_powers(first), _powers(second), strict=True)]
    return [Pair(mode, *one) for one in zip(_signed(first), _signed(second), powers, strict=True)]


@dataclass(eq=False)
class _SubPe:
    """Eight multipliers, an adder tree and a sum; `is_last` of those that a group takes."""

    pair: Pair
    right: Integers
    is_last: bool
    done: int = 0
    sum: int = 0

    def step(self) -> None:
        now = slice(self.done, self.done + LANES)
        products = self.pair.left[now] * self.right[now]
        while len(products) > 1:
            products = products[::2] + products[1::2]
        self.done, self.sum = self.done + LANES, self.sum + int(products[0])
        assert abs(self.sum) < 1 << SUM_BITS - 1


class Pe(Counted):
    """One element, with one output. `dot` runs its clock until the sum of all groups stands."""

    def __init__(self, intermediate: Intermediate = "fp32") -> None:
        super().__init__()
        self.width = WIDTHS[intermediate]
        self._waiting: deque[Pair] = deque()
        self._working: list[_SubPe] = []
        self._sums: deque[_SubPe] = deque()  # of the round before
        self._high, self._total = 0, 0.0
        self._converted: tuple[float, float] | None = None
        self._scaled: tuple[float, float] | None = None

    def dot(self, pairs: Sequence[Pair]) -> Dot:
        """Of all groups, in their order."""
        if not pairs:
            raise ValueError("a dot product wants at least one group")
        self._waiting.extend(pairs)
        while self._waiting or self._working or self._sums or self._converted or self._scaled:
            self._clock()
        return Dot(self._total, self.cycles, self.events)

    def _clock(self) -> None:
        """One cycle; the last stage first, so that each takes what was in its register before."""
        self.cycles += 1
        if self._scaled:
            self._total = multiply_add(*self._scaled, self._total)
            self._count(float_adds=1, register_bits=FLOAT_BITS)
        self._scaled = self._converted  # the product stays exact: it is rounded with the sum
        self._count(register_bits=FLOAT_BITS * (self._converted is not None))
        self._converted = self._take() if self._sums else None
        if not self._working and self._waiting:
            self._begin_round()
        if self._working:
            self._multiply()

    def _begin_round(self) -> None:
        """The sub-PEs take as many groups of one mode as they have room for."""
        mode = self._waiting[0].mode
        while self._waiting and self._waiting[0].mode is mode and len(self._working) < SUB_PES:
            pair = self._waiting.popleft()
            self._count(register_bits=PAIRS * (1 + WHOLE_BITS) + EXPONENT_BITS + _OPERAND_BITS[mode])
            halves = _halves(pair.right) if mode is Mode.m8m8 else [pair.right]
            self._working += [_SubPe(pair, half, half is halves[-1]) for half in halves]

    def _multiply(self) -> None:
        for sub_pe in self._working:
            sub_pe.step()
            self._count(multiplies=LANES, adds=LANES, register_bits=SUM_BITS)
        if self._working[0].done == PAIRS:
            self._sums.extend(self._working)
            self._working = []

    def _take(self) -> tuple[float, float] | None:
        """The next sub-PE's sum; nothing yet where its other half is still to come."""
        sub_pe = self._sums.popleft()
        if not sub_pe.is_last:
            self._high = sub_pe.sum << HALF_BITS
            self._count(shifts=1, register_bits=FUSED_BITS)
            return None
        total, pair = sub_pe.sum, sub_pe.pair
        if pair.mode is Mode.m8m8:
            total += self._high
            self._count(adds=1)
        self._count(converts=1, float_multiplies=pair.mode is Mode.m8w4, register_bits=FLOAT_BITS)
        return convert(total, pair.power, self.width), pair.scale


def _halves(values: Integers) -> list[Integers]:
    """High and low four bits of magnitudes, both with the sign."""
    sign, magnitude = np.sign(values), np.abs(values)
    return [sign * (magnitude >> HALF_BITS), sign * (magnitude & (1 << HALF_BITS) - 1)]


def _signed(row: BFPTensor) -> Integers:
    """[groups, 32]."""
    if row.format.group != PAIRS or len(row.shape) != 1 or not row.shape[0]:
        raise ValueError(f"the unit takes rows in groups of {PAIRS}, not {list(row.shape)} in {row.format}")
    magnitude = row.magnitude.numpy().astype(np.int64)
    return np.where(row.sign.numpy(), -magnitude, magnitude)


def _powers(row: BFPTensor) -> list[int]:
    return [unit_power(exponent, row.format.mantissa) for exponent in row.exponent.tolist()]


def _check(which: str, values: Integers, bits: int) -> None:
    if values.shape != (PAIRS,):
        raise ValueError(f"the {which} operand has {PAIRS} values, not {list(values.shape)}")
    if int(np.abs(values).max()) >> bits:
        raise ValueError(f"the {which} operand has {bits} bits of magnitude, not {int(np.abs(values).max())}")
