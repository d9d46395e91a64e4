"""Harmonia's generator of key offsets: half of the extremes of the channels that have the largest.

Keys of the first 32 tokens pass a column of eight tokens a cycle. A tree of comparators finds the one of largest
magnitude, the earliest of equals; a register a channel keeps it over the passes. Then channels go one a cycle through a
list of `top` entries, each with a comparator, that stays sorted: of equal ones the first channel wins. Halving costs
nothing: the subtractor takes the extreme with its exponent one lower, so that an odd subnormal loses no bit.

To the bit what `kernels/attention_reference.py` subtracts from keys, and what the native cache does.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...formats.bfp import FP16_MAX
from .events import Counted, Events, check_positive
from .halves import Integers, bit_patterns, check
from .harmonia_converter import COLUMNS, ROWS

WINDOW = 32  # tokens
HALF_BITS = 16


@dataclass(frozen=True)
class Offsets:
    """float32 [channels], zero but for the chosen ones, and what they took."""

    values: Tensor
    cycles: int
    events: Events


def cycles(tokens: int, channels: int) -> int:
    """Of all passes, and of the list."""
    check_positive(tokens=tokens, channels=channels)
    return -(-tokens // ROWS) * -(-channels // COLUMNS) * COLUMNS + channels


class OffsetGenerator(Counted):
    """For `top` channels."""

    def __init__(self, top: int) -> None:
        super().__init__()
        if top < 0:
            raise ValueError(f"so many channels cannot have an offset: {top}")
        self.top = top

    def generate(self, keys: Tensor) -> Offsets:
        """Of keys FP16 [tokens, channels] of one head: at most 32 tokens."""
        if keys.ndim != 2 or not keys.numel() or len(keys) > WINDOW:
            raise ValueError(f"offsets are made of keys [1 to {WINDOW} tokens, channels], not {list(keys.shape)}")
        check(keys)
        extremes = self._extremes(bit_patterns(keys))
        offsets = torch.zeros(keys.shape[1])
        for channel in self._largest(extremes & 0x7FFF):
            pattern = np.array(extremes[channel], np.uint16).view(np.float16)
            offsets[channel] = float(pattern) / 2
        return Offsets(offsets, self.cycles, self.events)

    def _extremes(self, bits: Integers) -> Integers:
        """Each channel's value of largest magnitude, int64 [channels]."""
        rows, columns = (-(-size // side) * side for size, side in zip(bits.shape, (ROWS, COLUMNS), strict=True))
        padded = np.zeros((rows, columns), np.int64)
        padded[: bits.shape[0], : bits.shape[1]] = bits
        extremes = np.zeros(columns, np.int64)
        for first in range(0, rows, ROWS):
            for channel in range(columns):
                self.cycles += 1
                largest = self._tree(padded[first : first + ROWS, channel])
                extremes[channel] = self._larger(extremes[channel : channel + 1], largest)[0]
                self._count(register_bits=HALF_BITS)
        return extremes[: bits.shape[1]]

    def _tree(self, values: Integers) -> Integers:
        while len(values) > 1:
            values = self._larger(values[::2], values[1::2])
        return values

    def _larger(self, first: Integers, second: Integers) -> Integers:
        self._count(compares=len(first))
        return np.where(second & 0x7FFF > first & 0x7FFF, second, first)

    def _largest(self, magnitudes: Integers) -> list[int]:
        """The sorted list after all channels."""
        entries: list[tuple[int, int]] = []
        for channel, magnitude in enumerate(magnitudes.tolist()):
            self.cycles += 1
            self._count(compares=self.top)
            place = sum(other >= magnitude for other, _ in entries)
            entries.insert(place, (magnitude, channel))
            del entries[self.top :]
        return [channel for _, channel in entries]


def subtract(keys: Tensor, offsets: Tensor) -> Tensor:
    """Keys FP16 less offsets [channels]: an FP32 difference, then FP16, at most its largest number."""
    return (keys.to(torch.float32) - offsets).clamp(-FP16_MAX, FP16_MAX).to(torch.float16)
