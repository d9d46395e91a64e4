"""M-ANT's multiply-accumulate unit: INT8 activations, weights of its type of four bits.

A code has a sign and an index i of three bits and stands for ±(a · i + 2^i), where the coefficient a is chosen for each
group of weights. So a group's sum is a · Σ ±x · i + Σ ±x · 2^i: the unit keeps both sums, one by a multiplier of 8 × 3
bits and one by a shifter, and joins them once a group, a stage later.

Of M-ANT (Hu et al., HPCA 2025) we had the abstract only: groups of "e.g., 64" values, a type that adapts to each group,
decoding fused with computation, a unit that quantises at run time. The formula of a value is our understanding of the
type, not checked against its text. Our reading: the coefficient is unsigned with 8 bits; a group's sum leaves the unit
as an integer, and whoever takes it applies the group's scale; each unit joins its two sums itself; three stages.
"""

from torch import Tensor

from .dot import Dot, check_integers
from .events import Counted, Events, check_positive

GROUP = 64
ACTIVATION_BITS, INDEX_BITS, COEFFICIENT_BITS = 8, 3, 8
CODES = 2 << INDEX_BITS


def value(code: int, coefficient: int) -> int:
    """What a code, its sign above its index, stands for."""
    index = code % (CODES // 2)
    size = coefficient * index + (1 << index)
    return -size if code >= CODES // 2 else size


def cycles(pairs: int) -> int:
    """One for each pair of a group to come, one until the last is in the sums, one until they are joined."""
    check_positive(pairs=pairs)
    return pairs + 2


class SumBits:
    """Of two's complement: how wide the sums of a `group` are, at most."""

    def __init__(self, activation_bits: int, coefficient_bits: int, group: int) -> None:
        x, index = 1 << activation_bits - 1, (1 << INDEX_BITS) - 1
        multiplied, shifted = group * x * index, group * x << index
        joined = ((1 << coefficient_bits) - 1) * multiplied + shifted
        self.multiplied, self.shifted, self.joined = (size.bit_length() + 1 for size in (multiplied, shifted, joined))


class MAntMac(Counted):
    """One unit, for groups of at most `group` pairs."""

    def __init__(self, group: int = GROUP) -> None:
        super().__init__()
        check_positive(group=group)
        self.group, self._bits = group, SumBits(ACTIVATION_BITS, COEFFICIENT_BITS, group)

    def dot(self, x: Tensor, codes: Tensor, coefficient: int) -> Dot:
        """A group's INT8 activations [pairs] with codes [pairs], 0 to 15."""
        self._check(x, codes, coefficient)
        multiplied, shifted, held = 0, 0, None
        for pair in [*zip(x.tolist(), codes.tolist(), strict=True), None]:
            self.cycles += 1
            if held is not None:
                sign, index = divmod(held[1], CODES // 2)
                signed = -held[0] if sign else held[0]
                multiplied, shifted = multiplied + signed * index, shifted + (signed << index)
                register_bits = self._bits.multiplied + self._bits.shifted
                self._count(multiplies=1, shifts=1, adds=2, register_bits=register_bits)
            if pair is not None:
                self._count(register_bits=ACTIVATION_BITS + INDEX_BITS + 1)
            held = pair
        self.cycles += 1
        self._count(multiplies=1, adds=1, register_bits=self._bits.joined)
        return Dot(coefficient * multiplied + shifted, self.cycles, self.events)

    def _check(self, x: Tensor, codes: Tensor, coefficient: int) -> None:
        if x.ndim != 1 or not 1 <= len(x) <= self.group or x.shape != codes.shape:
            raise ValueError(
                f"a group is two rows of at most {self.group} pairs, not {list(x.shape)} and {list(codes.shape)}"
            )
        check_integers("activations", x, ACTIVATION_BITS)
        if codes.is_floating_point() or int(codes.min()) < 0 or int(codes.max()) >= CODES:
            raise ValueError(f"codes are integers from 0 to {CODES - 1}, not {codes.tolist()[:4]} …")
        if not 0 <= coefficient < 1 << COEFFICIENT_BITS:
            raise ValueError(f"a coefficient has {COEFFICIENT_BITS} bits, 0 to 255, not {coefficient}")


def events(pairs: int, group: int = GROUP) -> Events:
    """Of a group of so many pairs."""
    bits = SumBits(ACTIVATION_BITS, COEFFICIENT_BITS, group)
    register_bits = ACTIVATION_BITS + INDEX_BITS + 1 + bits.multiplied + bits.shifted
    of_pairs = Events(multiplies=1, shifts=1, adds=2, register_bits=register_bits).times(pairs)
    return of_pairs + Events(multiplies=1, adds=1, register_bits=bits.joined)
