"""The Hadamard transform of the channels of keys and queries.

Both times the same orthonormal matrix give the scores of before, and a channel that is much larger than the others is
spread over all of them. `matrix` is the specification; `transform` takes log2 additions per channel instead, in the
order that native code has, to the bit.
"""

import math

import torch
from torch import Tensor

from ..formats.kv import rotated_block


def matrix(channels: int) -> Tensor:
    """Orthonormal and symmetric, float64 [channels, channels]: equal blocks on its diagonal, each as large as the
    largest power of two that divides `channels`."""
    block = torch.ones(1, 1, dtype=torch.float64)
    while len(block) < rotated_block(channels):
        block = torch.cat([torch.cat([block, block], 1), torch.cat([block, -block], 1)])
    return torch.kron(torch.eye(channels // len(block)).double(), block / math.sqrt(len(block)))


def transform(x: Tensor) -> Tensor:
    """x [..., channels] times the matrix, by float32 additions in a fixed order and one product at the end."""
    block, half = rotated_block(x.shape[-1]), 1
    y = x.to(torch.float32)
    while half < block:
        first, second = y.unflatten(-1, (-1, 2, half)).unbind(-2)
        y = torch.stack([first + second, first - second], -2).flatten(-3)
        half *= 2
    return y * (1 / math.sqrt(block))
