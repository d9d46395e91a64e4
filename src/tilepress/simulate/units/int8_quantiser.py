"""INT8 quantisers: FP16 results of the array become integers of eight bits, eight values a cycle.

A value times its scale is rounded to the nearest integer, ties to even, and saturated to ±127. What is infinite or not
a number, the value or the scale, counts as infinite: the code is ±127 by the signs, and 0 if the other is zero.

- offline (Tender, by Harmonia's section V-A): scales are those of calibration. An FP16 scale comes beside each column.
- online (M-ANT's real-time quantisation, Harmonia's section II-B): a row's values share a scale in groups. Each row
  keeps the largest magnitude of the results that come in turn; a divider a row makes the scale of it, 127 / largest in
  TF32 (11 bits of significand), rounded to nearest; then a multiplier a row takes one value a cycle, read back from
  the memory that kept them. All three are at work on groups that follow each other. A group of zeros has scale 0, one
  with a value that is infinite or not a number an infinite scale, which no other group has.

The papers say which scales and when; formats, rounding, dividers and stages are our reading, the order of values is
that of Harmonia's converter: eight tokens, a channel a cycle. Who scales sums back divides by the scale.
"""

import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from .events import Counted, Events, check_positive
from .halves import EXPONENT_BITS, SIGNIFICAND_BITS, Integers, bit_patterns
from .rounding import Width, nearest

ROWS = 8
GROUP = 64  # M-ANT's abstract: "e.g., 64"
MOST, CODE_BITS = 127, 8
MAGNITUDE_BITS = 15
INFINITE = 31 << SIGNIFICAND_BITS - 1  # from this magnitude on, patterns are infinite or no numbers
TF32 = Width(SIGNIFICAND_BITS, -126, (2 - 2.0**-10) * 2.0**127)
# Of a divider: to shift a subnormal divisor to its place, a bit of the quotient each, to round it.
NORMALISING, DIVIDING, ROUNDING = SIGNIFICAND_BITS - 1, SIGNIFICAND_BITS + 2, 1
SCALING = NORMALISING + DIVIDING + ROUNDING


class Scale(StrEnum):
    """Where scales come from."""

    offline = "offline"
    online = "online"


@dataclass(frozen=True, eq=False)
class Quantised:
    """`codes` [tokens, channels]; `scales`, float32 [tokens, groups], or those given; and what they took."""

    codes: Integers
    scales: Tensor
    cycles: int
    events: Events


def cycles(tokens: int, channels: int, scale: Scale, group: int = GROUP) -> int:
    """From the first value to the last code."""
    check_positive(tokens=tokens, channels=channels)
    blocks = -(-tokens // ROWS)
    if scale is Scale.offline:
        return blocks * channels
    return group * (blocks * -(-channels // group) + 1) + SCALING


def events(tokens: int, channels: int, scale: Scale, group: int = GROUP) -> Events:
    """Whatever the values; lanes past the edge work too."""
    blocks = -(-tokens // ROWS) * (1 if scale is Scale.offline else -(-channels // group))
    columns = blocks * (channels if scale is Scale.offline else group)
    codes = _CODE.times(ROWS * columns)
    if scale is Scale.offline:
        return codes
    return codes + _LARGEST.times(ROWS * columns) + _division().times(ROWS * blocks)


_CODE = Events(multiplies=1, shifts=1, adds=1, register_bits=CODE_BITS)
_LARGEST = Events(compares=1, register_bits=MAGNITUDE_BITS)


def _division() -> Events:
    """Of one row: a divisor and its exponent, loaded and shifted; a remainder and a quotient; a scale."""
    divisor, quotient = SIGNIFICAND_BITS + EXPONENT_BITS + 1, 2 * SIGNIFICAND_BITS + 3
    bits = divisor * (1 + NORMALISING) + quotient * DIVIDING + SIGNIFICAND_BITS + CODE_BITS - 1
    return Events(shifts=NORMALISING, adds=DIVIDING + ROUNDING, register_bits=bits)


def scale_of(largest: int) -> float:
    """127 / the FP16 number of that pattern, without its sign, in TF32."""
    if largest >= INFINITE:
        return math.inf
    return float(nearest(Fraction(MOST) / _number(largest), TF32)) if largest else 0.0


def code_of(pattern: int, scale: float) -> int:
    """Of an FP16 pattern."""
    magnitude = pattern & (1 << MAGNITUDE_BITS) - 1
    is_negative = (pattern >> MAGNITUDE_BITS == 1) ^ (math.copysign(1, scale) < 0)
    if not magnitude or not scale:
        size = 0
    elif magnitude >= INFINITE or not math.isfinite(scale):
        size = MOST
    else:
        size = min(round(_number(magnitude) * Fraction(abs(scale))), MOST)
    return -size if is_negative else size


def _number(magnitude: int) -> Fraction:
    exponent, fraction = divmod(magnitude, 1 << SIGNIFICAND_BITS - 1)
    significand = fraction + (exponent > 0) * (1 << SIGNIFICAND_BITS - 1)
    return significand * Fraction(2) ** (max(exponent, 1) - 25)


class OfflineQuantiser(Counted):
    """One quantiser; a column of eight values a cycle."""

    def quantise(self, x: Tensor, scales: Tensor) -> Quantised:
        """FP16 [tokens, channels], and FP16 scales [channels]."""
        patterns = _patterns(x, ROWS, 1)
        if tuple(scales.shape) != (x.shape[1],) or scales.dtype != x.dtype:
            raise ValueError(f"{x.shape[1]} channels want as many FP16 scales, not {scales.dtype} {list(scales.shape)}")
        codes, of_channels = np.zeros(patterns.shape, np.int64), scales.tolist()
        for top in range(0, len(patterns), ROWS):
            for channel, scale in enumerate(of_channels):
                self.cycles += 1
                column = patterns[top : top + ROWS, channel].tolist()
                codes[top : top + ROWS, channel] = [code_of(pattern, scale) for pattern in column]
                self._count(**vars(_CODE.times(ROWS)))
        return Quantised(codes[: len(x)], scales, self.cycles, self.events)


@dataclass
class _Block:
    """A group of each of eight rows, whose values lie in `columns` [group, 8]; their largest magnitudes and scales."""

    columns: Integers
    codes: Integers
    largest: Integers
    scales: list[float]


class OnlineQuantiser(Counted):
    """One quantiser, for groups of at least so many values that a division is done while a group comes."""

    def __init__(self, group: int = GROUP) -> None:
        super().__init__()
        if group < SCALING:
            raise ValueError(f"a group has at least {SCALING} values, as many as a division takes cycles, not {group}")
        self.group = group

    def quantise(self, x: Tensor) -> Quantised:
        """FP16 [tokens, channels]."""
        patterns = _patterns(x, ROWS, self.group)
        tiles = patterns.reshape(-1, ROWS, patterns.shape[1] // self.group, self.group).transpose(0, 2, 3, 1)
        blocks = [
            _Block(columns, np.zeros_like(columns), np.zeros(ROWS, np.int64), [])
            for columns in tiles.reshape(-1, self.group, ROWS)
        ]
        self._run(blocks)
        codes = np.stack([block.codes for block in blocks]).reshape(tiles.shape).transpose(0, 3, 1, 2)
        rows = codes.reshape(patterns.shape)[: x.shape[0], : x.shape[1]]
        scales = torch.tensor([block.scales for block in blocks]).reshape(*tiles.shape[:2], ROWS).transpose(1, 2)
        return Quantised(rows, scales.reshape(len(patterns), -1)[: len(x)], self.cycles, self.events)

    def _run(self, blocks: list[_Block]) -> None:
        """In a cycle: a column of one block is quantised, one is divided for, a column of one comes."""
        coming = deque((block, step) for block in blocks for step in range(self.group))
        quantising: deque[tuple[_Block, int]] = deque()
        divided: _Block | None = None
        left = 0
        while coming or divided or quantising:
            self.cycles += 1
            if quantising:
                self._quantise(*quantising.popleft())
            if divided:
                left -= 1
                if not left:
                    self._divide(divided)
                    quantising.extend((divided, step) for step in range(self.group))
                    divided = None
            if coming:
                block, step = coming.popleft()
                self._compare(block, step)
                if step == self.group - 1:
                    divided, left = block, SCALING

    def _compare(self, block: _Block, step: int) -> None:
        block.largest = np.maximum(block.largest, block.columns[step] & (1 << MAGNITUDE_BITS) - 1)
        self._count(**vars(_LARGEST.times(ROWS)))

    def _divide(self, block: _Block) -> None:
        block.scales = [scale_of(largest) for largest in block.largest.tolist()]
        self._count(**vars(_division().times(ROWS)))

    def _quantise(self, block: _Block, step: int) -> None:
        pairs = zip(block.columns[step].tolist(), block.scales, strict=True)
        block.codes[step] = [code_of(pattern, scale) for pattern, scale in pairs]
        self._count(**vars(_CODE.times(ROWS)))


def _patterns(x: Tensor, rows: int, columns: int) -> Integers:
    """Of FP16 values, with zeros past the edge to multiples of `rows` and `columns`."""
    if x.ndim != 2 or not x.numel():
        raise ValueError(f"the quantiser takes FP16 values [tokens, channels], not {list(x.shape)}")
    if x.dtype != torch.float16:
        raise TypeError(f"the unit takes FP16 values, got {x.dtype}: round them first")
    return np.pad(bit_patterns(x), ((0, -x.shape[0] % rows), (0, -x.shape[1] % columns)))
