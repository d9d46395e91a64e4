"""A multiply-accumulate unit with a sum in FP16, as arrays of FP16 and lanes of vector units have it.

An FP16 activation is multiplied with an FP16 weight (a TPU-like array) or with an integer of four bits (Harmonia's
systolic array of FP-INT units); the exact product joins an FP16 sum, rounded once, to nearest with ties to even. A sum
past the largest number is infinite and stays so.

Harmonia's sections V-A and V-D say FP16 of products and nothing of sums: the sum in FP16, the order of work and the two
stages are our reading. Scales of integer weights are not applied here: a sum is that of one group, and who takes it
scales it.
"""

from enum import StrEnum

from torch import Tensor

from .dot import WEIGHT_BITS, Dot, check_integers
from .events import Counted, Events, check_positive
from .halves import check
from .rounding import FP16, multiply_add

HALF_BITS = 16


class WeightFormat(StrEnum):
    fp16 = "fp16"
    int4 = "int4"

    @property
    def bits(self) -> int:
        return HALF_BITS if self is WeightFormat.fp16 else WEIGHT_BITS


def cycles(pairs: int) -> int:
    """One for each pair to come, one more until the last is in the sum."""
    check_positive(pairs=pairs)
    return pairs + 1


def events(pairs: int, weights: WeightFormat) -> Events:
    register_bits = 2 * HALF_BITS + weights.bits  # both operands and the sum
    return Events(float_multiplies=1, float_adds=1, register_bits=register_bits).times(pairs)


class Fp16Mac(Counted):
    """One unit."""

    def __init__(self, weights: WeightFormat) -> None:
        super().__init__()
        self.weights = weights

    def dot(self, x: Tensor, weights: Tensor) -> Dot:
        """Of FP16 activations [pairs] with FP16 weights, or integers of four bits, of the same shape."""
        self._check(x, weights)
        total, held = 0.0, None
        for pair in [*zip(x.tolist(), weights.tolist(), strict=True), None]:
            self.cycles += 1
            if held is not None:
                total = multiply_add(held[0], float(held[1]), total, FP16)
                self._count(float_multiplies=1, float_adds=1, register_bits=HALF_BITS)
            if pair is not None:
                self._count(register_bits=HALF_BITS + self.weights.bits)
            held = pair
        return Dot(total, self.cycles, self.events)

    def _check(self, x: Tensor, weights: Tensor) -> None:
        if x.ndim != 1 or not len(x) or x.shape != weights.shape:
            raise ValueError(f"pairs are two rows [pairs], not {list(x.shape)} and {list(weights.shape)}")
        check(x)
        if self.weights is WeightFormat.fp16:
            check(weights)
        else:
            check_integers("weights", weights, WEIGHT_BITS)
