"""Harmonia's converter: FP16 results of the array become block floating point, eight values a cycle.

The array is 8 rows, of tokens, and 16 columns, of channels. A column's eight results come in one cycle, column after
column. Two paths lead from there to groups of 32:

- channels of a token: each row has a comparator that keeps the largest exponent of 32 results in turn; then the
  aligner takes one value of each row a cycle.
- tokens of a channel (values of attention): a tree of comparators finds the largest of a column's eight, a register
  a column keeps the largest of four such passes over the array; then the aligner takes eight of a group a cycle.

Either way a block's exponents are found while the block before is aligned. An aligner is a shifter: to the bit what
`formats.bfp.encode` gives.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ...formats.bfp import BFP, BFPTensor
from ...formats.kv import WIDEST
from .events import Counted, Events, check_positive
from .halves import EXPONENT_BITS, SIGNIFICAND_BITS, Integers, check, effective, extract

GROUP = 32
ROWS, COLUMNS = 8, 16


class Path(StrEnum):
    """Which values share an exponent."""

    channels = "channels"  # of one token
    tokens = "tokens"  # of one channel


@dataclass(frozen=True)
class Converted:
    """[tokens, channels] in groups of 32, and what they took."""

    values: BFPTensor
    cycles: int
    events: Events


@dataclass(frozen=True)
class _Block:
    """What is converted at a time: `places` of values [steps, 8] in the order in which they come, `order` in which the
    aligner takes those steps, and the `registers` of largest exponents."""

    path: Path
    places: Integers
    order: Integers
    registers: Integers = field(default_factory=lambda: np.zeros(COLUMNS, np.int64))

    def owner(self, step: int) -> Integers:
        """The register of each of a step's eight values."""
        return np.arange(ROWS) if self.path is Path.channels else np.full(ROWS, step % COLUMNS)


def cycles(tokens: int, channels: int, path: Path) -> int:
    """From the first result to the last converted value."""
    check_positive(tokens=tokens, channels=channels)
    if path is Path.channels:
        return GROUP * (-(-tokens // ROWS) * -(-channels // GROUP) + 1)
    full, rest = divmod(tokens, GROUP)
    tiles, most, last = -(-channels // COLUMNS), _passes(GROUP), _passes(rest)
    return COLUMNS * (most * (full * tiles + (full > 0)) + last * (tiles + (full == 0)))


def events(tokens: int, channels: int, path: Path) -> Events:
    """Whatever the values; lanes past the edge work too."""
    width = GROUP if path is Path.channels else COLUMNS
    steps = -(-tokens // ROWS) * -(-channels // width) * width
    exponents = ROWS if path is Path.channels else 1  # written a step
    lanes = ROWS * steps
    written = steps * (exponents * EXPONENT_BITS + ROWS * (1 + WIDEST))
    return Events(compares=lanes, adds=lanes, shifts=lanes, register_bits=written)


class Converter(Counted):
    """One converter, set up for one width of magnitudes."""

    def __init__(self, mantissa: int) -> None:
        super().__init__()
        if not 1 <= mantissa <= WIDEST:
            raise ValueError(f"the aligner gives magnitudes of 1 to {WIDEST} bits, not {mantissa}")
        self.format = BFP(GROUP, mantissa)

    def convert(self, x: Tensor, path: Path) -> Converted:
        """FP16 values [tokens, channels]."""
        if x.ndim != 2 or not x.numel():
            raise ValueError(f"the converter takes FP16 values [tokens, channels], not {list(x.shape)}")
        check(x)
        rows, columns = (-(-size // GROUP) * GROUP for size in x.shape)
        whole = torch.nn.functional.pad(x, (0, columns - x.shape[1], 0, rows - x.shape[0]))
        self._fields = extract(whole.flatten())
        self._magnitude, self._exponent = np.zeros((2, whole.numel()), np.int64)
        self._run(_blocks(x.shape[0], x.shape[1], columns, path))
        return Converted(self._result(x, (rows, columns), path), self.cycles, self.events)

    def _run(self, blocks: Iterator[_Block]) -> None:
        """Each block is compared while the one before it is aligned."""
        before: _Block | None = None
        for block in chain(blocks, [None]):
            steps = [0 if one is None else len(one.places) for one in (block, before)]
            for step in range(max(steps)):
                self.cycles += 1
                if block and step < steps[0]:
                    self._compare(block, step)
                if before and step < steps[1]:
                    self._align(before, int(before.order[step]))
            before = block

    def _compare(self, block: _Block, step: int) -> None:
        exponents, owner = self._fields.exponent[block.places[step]], block.owner(step)
        if block.path is Path.tokens:
            exponents, owner = self._tree(exponents), owner[:1]
        block.registers[owner] = np.maximum(block.registers[owner], exponents)
        self._count(compares=len(owner), register_bits=len(owner) * EXPONENT_BITS)

    def _tree(self, exponents: Integers) -> Integers:
        while len(exponents) > 1:
            self._count(compares=len(exponents) // 2)
            exponents = np.maximum(exponents[::2], exponents[1::2])
        return exponents

    def _align(self, block: _Block, step: int) -> None:
        """Eight significands of 11 bits to the right by how far their exponents lie below, and cut to size."""
        places, shared = block.places[step], block.registers[block.owner(step)]
        distance = effective(shared) - effective(self._fields.exponent[places])
        cut = SIGNIFICAND_BITS - self.format.mantissa
        self._magnitude[places] = self._fields.significand[places] >> distance + cut
        self._exponent[places] = shared
        self._count(adds=ROWS, shifts=ROWS, register_bits=ROWS * (1 + WIDEST))

    def _result(self, x: Tensor, padded: tuple[int, int], path: Path) -> BFPTensor:
        axis = 1 if path is Path.channels else 0
        lines_in = x.shape[1 - axis]

        def grouped(values: Integers) -> Tensor:
            lines = values.reshape(padded) if axis else values.reshape(padded).T
            return torch.from_numpy(np.ascontiguousarray(lines[:lines_in].reshape(lines_in, -1, GROUP)))

        sign, magnitude, exponent = map(grouped, (self._fields.sign, self._magnitude, self._exponent))
        return BFPTensor(
            self.format, tuple(x.shape), axis, sign > 0, magnitude.to(torch.int32), exponent[..., 0].to(torch.uint8)
        )


def _blocks(tokens: int, channels: int, columns: int, path: Path) -> Iterator[_Block]:
    """Of a tensor whose rows lie `columns` apart."""
    height, width = (ROWS, GROUP) if path is Path.channels else (GROUP, COLUMNS)
    lanes, across = np.arange(ROWS), np.arange(width)
    for first in range(0, tokens, height):
        passes = np.arange(_passes(min(tokens - first, height)))
        order = np.arange(len(passes) * width).reshape(len(passes), width).T.ravel()  # a group after the other
        rows = first + ROWS * passes[:, None, None] + lanes
        for left in range(0, channels, width):
            yield _Block(path, (rows * columns + left + across[:, None]).reshape(-1, ROWS), order)


def _passes(tokens: int) -> int:
    """How often the array's rows give a part of so many tokens."""
    return -(-tokens // ROWS)
