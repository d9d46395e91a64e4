"""An integer multiply-accumulate unit, as Tender's array has it: products of INT8 join a sum of 32 bits.

Tender sorts channels into chunks whose scales are powers of two apart, the largest first. Where a chunk ends the sum is
shifted left by one, and the next chunk's products join it as they are: that is its requantisation at run time, and no
scale is multiplied until the dot product ends. That much is in its abstract ("scale factors of decomposed matrices are
powers of two apart"). That the shift takes no cycle of its own, but comes beside the first pair of the next chunk, and
the two stages are our reading.

A sum wraps, as adders of integers do: two's complement, modulo 2^sum_bits. `longest` says how many pairs never do.
"""

from collections.abc import Sequence

from torch import Tensor

from .dot import Dot, check_integers
from .events import Counted, Events, check_positive

BITS, SUM_BITS = 8, 32


def cycles(pairs: int) -> int:
    """One for each pair to come, one more until the last is in the sum."""
    check_positive(pairs=pairs)
    return pairs + 1


def longest(shifts: int, activation_bits: int = BITS, weight_bits: int = BITS, sum_bits: int = SUM_BITS) -> int:
    """Pairs whose sum never wraps, whatever they are, if it is shifted so often."""
    return (1 << sum_bits - 1) - 1 >> activation_bits + weight_bits - 2 + shifts


class IntMac(Counted):
    """One unit."""

    def __init__(self, activation_bits: int = BITS, weight_bits: int = BITS, sum_bits: int = SUM_BITS) -> None:
        super().__init__()
        self.activation_bits, self.weight_bits, self.sum_bits = activation_bits, weight_bits, sum_bits

    def dot(self, x: Tensor, weights: Tensor, chunks: Sequence[int] = ()) -> Dot:
        """Of integers [pairs] with weights [pairs]. `chunks`: pairs of each, in order; one chunk if not given."""
        begins = self._begins(x, weights, chunks or (len(x),))
        total, held = 0, None
        for pair in [*zip(x.tolist(), weights.tolist(), begins, strict=True), None]:
            self.cycles += 1
            if held is not None:
                total = self._wrapped((total << held[2]) + held[0] * held[1])
                self._count(multiplies=1, adds=1, shifts=held[2], register_bits=self.sum_bits)
            if pair is not None:
                self._count(register_bits=self.activation_bits + self.weight_bits)
            held = pair
        return Dot(total, self.cycles, self.events)

    def _wrapped(self, value: int) -> int:
        half = 1 << self.sum_bits - 1
        return (value + half) % (2 * half) - half

    def _begins(self, x: Tensor, weights: Tensor, chunks: Sequence[int]) -> list[int]:
        """1 for each pair that begins another chunk than the first."""
        if x.ndim != 1 or not len(x) or x.shape != weights.shape:
            raise ValueError(f"pairs are two rows [pairs], not {list(x.shape)} and {list(weights.shape)}")
        check_integers("activations", x, self.activation_bits)
        check_integers("weights", weights, self.weight_bits)
        if min(chunks) < 1 or sum(chunks) != len(x):
            raise ValueError(f"chunks have at least a pair each and {len(x)} together, not {list(chunks)}")
        return [int(place == 0 and number > 0) for number, size in enumerate(chunks) for place in range(size)]


def events(pairs: int, shifts: int = 0) -> Events:
    """Of INT8 in a sum of 32 bits."""
    return Events(multiplies=1, adds=1, register_bits=2 * BITS + SUM_BITS).times(pairs) + Events(shifts=shifts)
