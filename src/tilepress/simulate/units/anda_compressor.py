"""Anda's bit-plane compressor: FP16 values in groups of 64 become bit planes, a plane a cycle, 16 groups at a time.

In the first cycle a lane takes 64 values apart, catches their largest exponent, loads each aligner with a significand
and with how far its exponent lies below, and puts out the signs. In each of the next m cycles an aligner whose distance
is zero shifts its significand's highest bit out; any other puts out zero and counts down. So no shift is ever longer
than one place. The packager puts words where `formats.bfp.BitPlanes` and `kernels.pack_planes` have them: planes and
exponents are theirs to the bit.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...formats.bfp import BFP, BitPlanes
from .events import Counted, Events, check_positive
from .halves import EXPONENT_BITS, SIGNIFICAND_BITS, Fields, Integers, check, effective, extract

GROUP = 64
LANES = 16


@dataclass(frozen=True)
class Compressed:
    """Planes of the whole tensor, and what they took."""

    planes: BitPlanes
    cycles: int
    events: Events


def cycles_per_round(mantissa: int) -> int:
    """Of as many groups as there are lanes: the signs, then each magnitude bit."""
    return 1 + mantissa


def cycles(groups: int, mantissa: int, lanes: int = LANES) -> int:
    """Of `groups` groups."""
    check_positive(groups=groups, mantissa=mantissa, lanes=lanes)
    return -(-groups // lanes) * cycles_per_round(mantissa)


def events(groups: int, mantissa: int) -> Events:
    """Of `groups` groups, whatever their values; lanes without a group rest."""
    loaded = GROUP * (SIGNIFICAND_BITS + EXPONENT_BITS) + EXPONENT_BITS
    group = Events(
        compares=GROUP - 1 + mantissa * GROUP,
        adds=GROUP,
        shifts=mantissa * GROUP,
        register_bits=loaded + (1 + mantissa) * GROUP,
    )
    return group.times(groups)


class Compressor(Counted):
    """All lanes. `compress` runs their clock until every group is out."""

    def __init__(self, mantissa: int, lanes: int = LANES) -> None:
        super().__init__()
        check_positive(lanes=lanes)
        self.format, self.lanes = BFP(GROUP, mantissa), lanes
        self._significand = self._distance = np.zeros((0, GROUP), np.int64)

    def compress(self, x: Tensor) -> Compressed:
        """FP16 values [..., n], in groups along the last axis."""
        if not x.ndim:
            raise ValueError("a 0-d tensor has no axis to group along; reshape it to [1]")
        check(x)
        groups = -(-x.shape[-1] // GROUP)
        padded = torch.nn.functional.pad(x, (0, groups * GROUP - x.shape[-1]))
        fields = extract(padded.reshape(-1, GROUP))
        words, exponents = [], []
        for first in range(0, len(fields.sign), self.lanes):
            shared, signs = self._load(fields[first : first + self.lanes])
            planes = [signs, *(self._shift() for _ in range(self.format.mantissa))]
            words.append(np.stack(planes, axis=1))
            exponents.append(shared)
        return Compressed(self._packaged(x, groups, words, exponents), self.cycles, self.events)

    def _load(self, fields: Fields) -> tuple[Integers, NDArray[np.uint8]]:
        """A cycle: the shared exponents of the lanes' groups, and their signs."""
        self.cycles += 1
        shared = self._largest(fields.exponent)
        self._significand = fields.significand
        self._distance = effective(shared)[:, None] - effective(fields.exponent)
        bits = GROUP * (SIGNIFICAND_BITS + EXPONENT_BITS) + EXPONENT_BITS + GROUP
        self._count(adds=self._distance.size, register_bits=len(shared) * bits)
        return shared, _word(fields.sign)

    def _largest(self, exponents: Integers) -> Integers:
        while exponents.shape[1] > 1:
            self._count(compares=exponents.size // 2)
            exponents = np.maximum(exponents[:, ::2], exponents[:, 1::2])
        return exponents[:, 0]

    def _shift(self) -> NDArray[np.uint8]:
        """A cycle: the next bit of every value."""
        self.cycles += 1
        ready = self._distance == 0
        bit = np.where(ready, self._significand >> SIGNIFICAND_BITS - 1, 0)
        left = self._significand << 1 & (1 << SIGNIFICAND_BITS) - 1
        self._significand = np.where(ready, left, self._significand)
        self._distance = np.where(ready, 0, self._distance - 1)
        self._count(compares=bit.size, shifts=bit.size, register_bits=bit.size)
        return _word(bit)

    def _packaged(self, x: Tensor, groups: int, words: list[NDArray[np.uint8]], exponents: list[Integers]) -> BitPlanes:
        shape = (*x.shape[:-1], groups)
        planes = np.concatenate([np.empty((0, 1 + self.format.mantissa, GROUP // 8), np.uint8), *words])
        shared = np.concatenate([np.empty(0, np.int64), *exponents]).astype(np.uint8)
        return BitPlanes(
            self.format,
            tuple(x.shape),
            x.ndim - 1,
            torch.from_numpy(planes).reshape(*shape, *planes.shape[1:]),
            torch.from_numpy(shared).reshape(shape),
        )


def _word(bits: Integers) -> NDArray[np.uint8]:
    """Bits [lanes, 64] as bytes [lanes, 8], the first lowest."""
    return np.packbits(bits.astype(np.uint8), axis=-1, bitorder="little")
