"""What units that multiply have in common: what goes in, and what comes out."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from .events import Events
from .halves import Integers
from .rounding import FP16, nearest

WEIGHT_BITS = 4


@dataclass(frozen=True)
class Dot:
    """`total` in FP32, or in what the unit sums in, and what it took."""

    total: float
    cycles: int
    events: Events

    @property
    def output(self) -> float:
        """In FP16, which leaves the array."""
        return self.total if math.isinf(self.total) else nearest(Fraction(self.total), FP16)


@dataclass(frozen=True, eq=False)
class Weights:
    """One neuron's integers of four bits [inputs], and their scales, float32 [inputs / group, rounded up]."""

    integers: Tensor
    scales: Tensor
    group: int

    def __post_init__(self) -> None:
        if self.integers.ndim != 1 or self.integers.is_floating_point() or not len(self.integers):
            raise ValueError(f"weights are integers [inputs], not {self.integers.dtype} {list(self.integers.shape)}")
        least, most = int(self.integers.min()), int(self.integers.max())
        if least < -(1 << WEIGHT_BITS - 1) or most >= 1 << WEIGHT_BITS - 1:
            raise ValueError(f"weights are integers of {WEIGHT_BITS} bits, -8 to 7, not {least} to {most}")
        groups = -(-len(self.integers) // self.group)
        if tuple(self.scales.shape) != (groups,):
            raise ValueError(
                f"{len(self.integers)} weights in groups of {self.group} want {groups} scales, not "
                f"{list(self.scales.shape)}"
            )

    def cut(self, inputs: int, lanes: int) -> tuple[Integers, list[float]]:
        """Integers [groups, lanes] for `inputs` activations, zeros past the end, and the scale of each group."""
        if len(self.integers) != inputs:
            raise ValueError(f"{inputs} activations meet {len(self.integers)} weights: they must be as many")
        if self.group % lanes:
            raise ValueError(
                f"weights of this unit share a scale in multiples of {lanes}, not in groups of {self.group}"
            )
        groups = -(-inputs // lanes)
        padded = np.zeros(groups * lanes, np.int64)
        padded[:inputs] = self.integers.numpy()
        scales = self.scales.to(torch.float32).tolist()
        return padded.reshape(groups, lanes), [scales[g * lanes // self.group] for g in range(groups)]


def check_integers(name: str, values: Tensor, bits: int) -> None:
    """Refuse what is no two's complement integer of `bits`."""
    if values.is_floating_point() or values.dtype == torch.bool:
        raise TypeError(f"{name} are integers of {bits} bits, not {values.dtype}")
    least, most = int(values.min()), int(values.max())
    if least < -(1 << bits - 1) or most >= 1 << bits - 1:
        raise ValueError(f"{name} are integers of {bits} bits, not {least} to {most}")
