"""What units work on: numbers of one layer, a model's own or random ones, and how they are cut for a unit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...formats import decode
from ...tiles import pack, unpack_codes

RANDOM = "random"


@dataclass(frozen=True, eq=False)
class Operands:
    """float32: `activations` [tokens, inputs] of a linear layer with `weights` [outputs, inputs]; `queries` and `keys`
    [tokens, channels] of its attention, heads of 64 channels one after another."""

    activations: Tensor
    weights: Tensor
    queries: Tensor
    keys: Tensor


def random_operands(tokens: int = 64, size: int = 576, seed: int = 0) -> Operands:
    """Of the normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    activations, weights, queries, keys = (
        torch.randn(rows, size, generator=generator) for rows in (tokens, size, tokens, tokens)
    )
    return Operands(activations, weights, queries, keys)


@dataclass(frozen=True, eq=False)
class Neuron:
    """`integers` [groups, group] of one neuron's weights, and a scale for each group."""

    integers: list[list[int]]
    scales: list[float]


def neurons(weights: Tensor, bits: int, group: int) -> list[Neuron]:
    """Rows of weights as int`bits`:g`group`."""
    quantized, _ = unpack_codes(matrix := pack(weights, f"int{bits}:g{group}"))
    integers = decode(quantized.codes, matrix.format.element).to(torch.int64)
    if quantized.scales is None:
        raise ValueError(f"weights of {bits} bits have no scales")
    return [
        Neuron(row.reshape(-1, group).tolist(), scales.tolist())
        for row, scales in zip(integers, quantized.scales.to(torch.float32), strict=True)
    ]
