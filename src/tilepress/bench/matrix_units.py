"""How many matrix units this machine has, and which CPUs share one, by measurement.

Two CPUs that share a unit have half of its rate each when both multiply. Linux' topology, which virtual machines may
hide or invent, and the usual numberings only say which pairs are tried first.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import _native, kernels
from ..kernels.placement import own_cpus
from .idle import available_cpus

Rates = Callable[[Sequence[int]], Sequence[float]]  # products per second on each of these CPUs, all at once
Pair = tuple[int, int]

OPERATION = "multiply_tiles"
PRODUCT = 2 * 16 * 16 * 64  # multiplications and additions of one tile product
REPEATS = 5
SHARED = 0.7  # of two CPUs' rates alone, together: CPUs that share a unit have little more than half, others nearly all
SLOWED = 0.65  # the same where all CPUs multiply: clocks are lower then, with a unit each as well
BUDGET, SHORTEST, LONGEST = 0.8, 0.001, 0.004  # s: of all measurements, about; of one
_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class MatrixUnits:
    """`groups`: the CPUs of each unit. `rate`: multiplications and additions per second that one thread gets of a unit,
    int8, operands in registers; the median of all CPUs."""

    groups: Sequence[Sequence[int]]
    rate: float

    @property
    def cpus(self) -> list[int]:
        return sorted(cpu for group in self.groups for cpu in group)

    @property
    def one_cpu_each(self) -> list[int]:
        return sorted(min(group) for group in self.groups)


def measure_units() -> MatrixUnits | None:
    """Those of the CPUs that this process may use; None where there is no matrix unit. ValueError where they cannot be
    counted: threads cannot be pinned, have less time than CPUs, so that all would look shared, or others use units."""
    cpus = own_cpus()
    if not cpus or kernels.chosen(OPERATION) == "portable":  # the emulator's
        return None
    if (time := available_cpus()) < len(cpus):
        raise ValueError(f"control groups give this process the time of {time:g} CPUs, and it may run on {len(cpus)}")
    seconds = min(max(BUDGET / (12 * len(cpus)), SHORTEST), LONGEST)
    return find_units(cpus, partial(_native.tile_rates, seconds=seconds), sibling_pairs(cpus))


def check_alone(rates: Mapping[int, float]) -> None:
    """ValueError if some of these CPUs, each alone, are far slower than others: someone else uses their units."""
    least, most = min(rates.values()), max(rates.values())
    if least < SHARED * most:
        raise ValueError(
            f"alone, CPUs multiply at {PRODUCT * least / 1e12:.1f} to {PRODUCT * most / 1e12:.1f} TOP/s: others use "
            "some of the units, other programs or other guests of this host"
        )


def find_units(cpus: Sequence[int], rates: Rates, siblings: Sequence[Pair] = ()) -> MatrixUnits:
    """Units of `cpus`, of which at most two share one. `siblings`: the pairs to try first."""
    search = _Search(cpus, rates)
    check_alone(search.alone)
    pairs = [*search.among_likely([*siblings, *usual_pairs(cpus)]), *search.among_rest()]
    paired = {cpu for pair in pairs for cpu in pair}
    groups: list[tuple[int, ...]] = [*pairs, *((cpu,) for cpu in cpus if cpu not in paired)]
    return MatrixUnits(sorted(groups), PRODUCT * statistics.median(search.alone.values()))


def usual_pairs(cpus: Sequence[int]) -> list[Pair]:
    """As machines number two CPUs of a core: one after the other, or all first ones before all second ones."""
    half = len(cpus) // 2
    return [*zip(cpus[::2], cpus[1::2], strict=False), *zip(cpus[:half], cpus[half:], strict=False)]


def sibling_pairs(cpus: Sequence[int], folder: Path = _CPUS) -> list[Pair]:
    """Pairs of `cpus` that Linux says are of one core."""
    lists = (folder / f"cpu{cpu}/topology/thread_siblings_list" for cpu in cpus)
    groups = sorted({tuple(parse_cpus(path.read_text())) for path in lists if path.is_file()})
    return [(group[0], group[1]) for group in groups if len(group) == 2 and set(group) <= set(cpus)]


def parse_cpus(text: str) -> list[int]:
    """CPUs of a list as Linux and taskset write it, "0-2,8" say."""
    ends = [[int(end) for end in part.split("-")] for part in text.strip().split(",")]
    return [cpu for first, *last in ends for cpu in range(first, (last or [first])[0] + 1)]


def cpu_list(cpus: Sequence[int]) -> str:
    """The reverse of `parse_cpus`."""
    starts = [cpu for cpu in cpus if cpu - 1 not in cpus]
    ends = [cpu for cpu in cpus if cpu + 1 not in cpus]
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(sorted(starts), sorted(ends), strict=True))


class _Search:
    """Pairs of CPUs that share a unit. Other programs take a CPU away now and then, which makes it look slower and its
    partner faster. So the rate alone, and that of two together, are the best of several measurements."""

    def __init__(self, cpus: Sequence[int], rates: Rates) -> None:
        self._rates = rates
        self.alone = {cpu: max(rates([cpu])[0] for _ in range(REPEATS)) for cpu in cpus}
        self._left = self._slowed(cpus)

    def among_likely(self, pairs: Sequence[Pair]) -> Iterator[Pair]:
        """Those of `pairs` that share a unit: at most one test each."""
        for pair in dict.fromkeys(pairs):
            if set(pair) <= set(self._left) and self._share(*pair):
                yield self._take(*pair)

    def among_rest(self) -> Iterator[Pair]:
        """Pairs of the CPUs that are left: the logarithm of their number of measurements for each."""
        self._left = self._slowed(self._left)
        while len(self._left) > 1:
            cpu, *others = self._left
            found = (self._partner(cpu, others) for _ in range(REPEATS))
            partner = next((one for one in found if one is not None), None)
            if partner is not None:
                yield self._take(cpu, partner)
            else:
                self._left = others

    def _take(self, cpu: int, partner: int) -> Pair:
        self._left = [other for other in self._left if other not in (cpu, partner)]
        return min(cpu, partner), max(cpu, partner)

    def _share(self, cpu: int, other: int) -> bool:
        enough = SHARED * (self.alone[cpu] + self.alone[other])
        return all(sum(self._rates([cpu, other])) < enough for _ in range(REPEATS))

    def _slowed(self, cpus: Sequence[int]) -> list[int]:
        """Those of `cpus` that were slower at least once while all of them multiplied; none of the others shares a unit
        with any of `cpus`. One that was only disturbed costs no more than tests that find it no partner."""
        if len(cpus) < 2:
            return []
        worst = map(min, zip(*(self._rates(cpus) for _ in range(REPEATS)), strict=True))
        return [cpu for cpu, rate in zip(cpus, worst, strict=True) if rate < SLOWED * self.alone[cpu]]

    def _partner(self, cpu: int, others: Sequence[int]) -> int | None:
        """Whoever shares a unit with `cpu`: of the half of `others` beside which it is slower, and so on."""
        while len(others) > 1:
            half = len(others) // 2
            others = min(others[:half], others[half:], key=lambda part: self._rates([cpu, *part])[0])
        return others[0] if self._share(cpu, others[0]) else None
