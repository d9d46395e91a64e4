"""A stimulus: what a unit is given while its energy is measured, and the words that it is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..units import Unit
from .operands import Neuron, Operands, neurons
from .trace import Trace, record

Cycle = dict[str, int]
DOTS = 3  # dot products of a case
TOKENS = 24  # of attention, whose dot products are short
MARGIN = 4  # cycles after the last input, in which sums are finished


@dataclass(frozen=True)
class Case:
    """`trace` makes the stimulus: what stands at the ports, how many operations that is, and the cycle from which on
    it counts. An operation has `items`, values say."""

    name: str
    operation: str
    items: int
    item: str
    trace: Callable[[], tuple[Trace, int, int]]


def clocked(unit: Unit, make: Callable[[], tuple[list[Cycle], int]]) -> Callable[[], tuple[Trace, int, int]]:
    def trace() -> tuple[Trace, int, int]:
        inputs, operations = make()
        return record(unit.component(), inputs), operations, 0

    return trace


def packed(values: Sequence[int], bits: int) -> int:
    """Integers in fields of `bits`, the first lowest; negative ones in two's complement."""
    return sum((int(value) & (1 << bits) - 1) << bits * place for place, value in enumerate(values))


def halves(values: Tensor) -> list[int]:
    """Patterns of FP16."""
    return [int(bits) for bits in values.to(torch.float16).numpy().view(np.uint16).ravel()]


def single(value: float) -> int:
    """The pattern of FP32."""
    return int(np.float32(value).view(np.uint32))


def rows_of(operands: Operands, bits: int, group: int) -> list[tuple[Tensor, Neuron]]:
    """An FP16 row of activations and a neuron for each dot product."""
    rows = operands.activations[:DOTS].to(torch.float16)
    return list(zip(rows, neurons(operands.weights[:DOTS], bits, group), strict=True))
