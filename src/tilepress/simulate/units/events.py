"""How often each part of a unit worked: what energy is counted from."""

from collections import Counter
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Events:
    """Operations, each one part's work in one cycle; `register_bits` are bits written into registers.

    plane_adds: additions of an adder tree whose inputs are weights that one bit each lets pass.
    multiplies, adds: of integers, with adders of trees and accumulators.
    shifts: by any distance; also a step of a serial aligner, which moves its register or counts down.
    compares: of exponents, or of counters with zero.
    converts: integers to floating point, or floating point to a narrower one.
    float_multiplies, float_adds: a fused multiply-add is one of each.
    lookups: codes looked up in tables. crossbar_moves: values that a crossbar carries.
    line_reads, line_writes: accesses of a memory by its whole port. requests, searches: entries written into a load
    unit's CAM, and searches of it.
    """

    plane_adds: int = 0
    multiplies: int = 0
    adds: int = 0
    shifts: int = 0
    compares: int = 0
    register_bits: int = 0
    converts: int = 0
    float_multiplies: int = 0
    float_adds: int = 0
    lookups: int = 0
    crossbar_moves: int = 0
    line_reads: int = 0
    line_writes: int = 0
    requests: int = 0
    searches: int = 0

    def __add__(self, other: "Events") -> "Events":
        counts = Counter(vars(self))
        counts.update(vars(other))
        return Events(**counts)

    def times(self, count: int) -> "Events":
        return Events(**{name: count * value for name, value in asdict(self).items()})


class Counted:
    """A unit with a clock that counts what its parts do."""

    def __init__(self) -> None:
        self.cycles = 0
        self._counts: Counter[str] = Counter()

    @property
    def events(self) -> Events:
        return Events(**self._counts)

    def _count(self, **events: int) -> None:
        self._counts.update(events)


def check_positive(**sizes: int) -> None:
    """ValueError that names the first size below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
