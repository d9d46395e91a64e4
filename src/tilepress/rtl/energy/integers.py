"""How operands become integers: chunks of channels as Tender has them, groups of codes as M-ANT has them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...simulate.units.m_ant_mac import CODES, COEFFICIENT_BITS, value

CHUNKS = 8  # at most; how many Tender has is not in the texts at hand


def largest_integer(bits: int) -> int:
    """Of symmetric quantisation."""
    return (1 << bits - 1) - 1


@dataclass(frozen=True, eq=False)
class Chunks:
    """`channels` of each chunk, none where no channel is of its size; a value of the first is its integer · `scale`,
    and of each further one half as much."""

    channels: list[Tensor]
    scale: float

    @property
    def last_scale(self) -> float:
        """Of a whole sum, which is doubled at every chunk but the first."""
        return self.scale / (1 << len(self.channels) - 1)


def chunks(activations: Tensor, bits: int) -> Chunks:
    """Channels of [tokens, channels] by their largest magnitude: within a factor of two of the largest, of four …"""
    largest = activations.abs().amax(0)
    number = (largest.max() / largest).log2().floor().clamp(0, CHUNKS - 1)
    channels = [torch.nonzero(number == one).flatten() for one in range(int(number.max()) + 1)]
    return Chunks(channels, float(largest.max()) / largest_integer(bits))


def rounded(values: Tensor, scale: float, bits: int) -> list[int]:
    most = largest_integer(bits)
    return (values.double() / scale).round().clamp(-most, most).to(torch.int64).tolist()


@dataclass(frozen=True, eq=False)
class MAntGroup:
    """What a group of weights is: value(code, `coefficient`) · `scale`, for each of `codes`."""

    codes: list[int]
    coefficient: int
    scale: float


def m_ant_group(weights: Tensor) -> MAntGroup:
    """Of all coefficients the one with the smallest squared error; the largest weight has the largest value."""
    sizes, largest = weights.abs().double(), max(float(weights.abs().max()), 1e-30)
    tables = torch.tensor([[value(index, a) for index in range(CODES // 2)] for a in range(1 << COEFFICIENT_BITS)])
    scales = largest / tables[:, -1].double()
    distance = (sizes[:, None] - (tables * scales[:, None])[:, None, :]).abs()  # [coefficients, weights, codes]
    nearest = distance.min(2)
    best = int(nearest.values.square().sum(1).argmin())
    codes = nearest.indices[best] + (weights < 0) * (CODES // 2)
    return MAntGroup(codes.tolist(), best, float(scales[best]))
