"""Headlines over what no paper prints: latencies of 57 and 150 ns, a queue or DRAM, prefetch degrees 5 and 15."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...item import Ours
from .schemes import Scheme, Speed, speed

if TYPE_CHECKING:
    from ....simulate.deca import System
    from ....simulate.deca.band import Memory

NOTE = "over memory latencies of 57 and 150 ns, a queue or DRAM timing, and prefetch degrees of 5 and 15"
SMALLER = 2  # times fewer weights than the figure itself: there are eight simulations to each


def speeds(
    machine: str, system: "System", scheme: Scheme, batch: int, weights: int
) -> Iterator[tuple["Memory", Speed]]:
    from ....simulate.deca.band import band

    for memory, one in band(system):
        yield memory, speed(machine, one, scheme, batch, weights // SMALLER, memory=memory)


def rates(machine: str, system: "System", scheme: Scheme, batch: int, weights: int) -> list[float]:
    """TFLOPS."""
    return [one.tflops for _, one in speeds(machine, system, scheme, batch, weights)]


def ratios(machine: str, scheme: Scheme, over: "System", of: Scheme, batch: int, weights: int) -> list[float]:
    """DECA's speed over that of another system, which has the same memory."""
    from ....simulate.deca import Accelerated

    others = {memory: one.tflops for memory, one in speeds(machine, over, of, batch, weights)}
    return [one.tflops / others[memory] for memory, one in speeds(machine, Accelerated(), scheme, batch, weights)]


def cells(row: str, column: str, figure: float, values: Iterable[float], unit: str) -> Iterator[Ours]:
    """The least and the most, beside the figure and with it."""
    several = [figure, *values]
    yield Ours(row, f"{column}, least", min(several), unit, NOTE)
    yield Ours(row, f"{column}, most", max(several), unit, NOTE)
