"""Linear layers with a thread on every CPU, and with a thread on one CPU of each matrix unit, in turns."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .. import kernels
from ..formats import parse_weight
from ..kernels.placement import Placement, own_cpus, threads_on
from .linear import Contestant, copies_in_turn, pack_contestant
from .peers import TORCH
from .race import free_memory, race, torch_threads
from .tuning import MEMORY

ACTIVATIONS = "int8"


@dataclass(frozen=True)
class PlacementRun:
    """What is timed: a matrix [size, size] of int4:g32 with int8 activations, of `many_rows` and of `few_rows`; in each
    of the `turns`, so many seconds for each placement and number of rows."""

    size: int = 4096
    many_rows: int = 512
    few_rows: int = 1
    turns: int = 5
    seconds: float = 0.1


@dataclass
class _Times:
    """Median seconds of a call in each turn."""

    many_rows: list[float] = field(default_factory=list)
    few_rows: list[float] = field(default_factory=list)


def measure_placement(one_per_unit: Sequence[int], run: PlacementRun) -> Placement:
    """How `one_per_unit`, CPUs that share no unit, compare with all CPUs of this process."""
    every = own_cpus()
    layer = _Layer(run, len(every))
    times = {tuple(cpus): _Times() for cpus in (every, one_per_unit)}
    for _ in range(run.turns):
        for cpus, own in times.items():
            with threads_on(cpus), torch_threads(len(cpus)):
                own.many_rows.append(layer.seconds(run.many_rows))
                own.few_rows.append(layer.seconds(run.few_rows))
    before, after = times[tuple(every)], times[tuple(one_per_unit)]
    speedups = _ratio(before.many_rows, after.many_rows), _ratio(before.few_rows, after.few_rows)
    return Placement(list(one_per_unit), *speedups)


def _ratio(before: Sequence[float], after: Sequence[float]) -> float:
    return statistics.median(before) / statistics.median(after)


class _Layer:
    """A layer whose weights come from memory, as in `bench linear`."""

    def __init__(self, run: PlacementRun, threads: int) -> None:
        self._run = run
        weight = torch.randn(run.size, run.size, generator=torch.Generator().manual_seed(0))
        packed = pack_contestant(weight, Contestant(parse_weight("int4:g32"), activations=ACTIVATIONS), threads)
        self._turn = copies_in_turn(packed, min(free_memory(), MEMORY))

    def seconds(self, rows: int) -> float:
        """Median of calls of so many rows, by the threads that torch has now."""
        x = torch.randn(rows, self._run.size, generator=torch.Generator().manual_seed(1))

        def call() -> None:
            kernels.linear(x, next(self._turn), activations=ACTIVATIONS)

        return race([call], [TORCH], repeats=1000, seconds=self._run.seconds)[0]
