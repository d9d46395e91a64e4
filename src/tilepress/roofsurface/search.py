"""Design-space search: every combination of engine, bandwidth, cores and frequency, and the smallest that is enough."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..formats import WeightFormat
from ..hardware import Machine
from .decompressors import Deca
from .domains import MATRIX, MEMORY, VECTOR, bounds, limits

POWERS_OF_TWO = (1, 2, 4, 8, 16, 32, 64)  # up to the largest of section 8.2; what all its engines have
WIDTHS = POWERS_OF_TWO  # those that divide a tile
TABLES = range(1, WIDTHS[-1] + 1)
NEGLIGIBLE = 0.01  # share of its speed that a kernel may lose to an engine that is called enough
Kernel = tuple[WeightFormat, float]


@dataclass(frozen=True)
class Space:
    """What is tried: engines (width, tables), and factors on the machine's bandwidth, cores and frequency."""

    widths: Sequence[int] = WIDTHS
    tables: Sequence[int] = TABLES
    bandwidths: Sequence[float] = (1.0,)
    cores: Sequence[float] = (1.0,)
    frequencies: Sequence[float] = (1.0,)

    @property
    def engines(self) -> list[Deca]:
        """Those with no more tables than weights leave in a cycle: more could never be used."""
        return [Deca(width, tables) for width, tables in product(self.widths, self.tables) if tables <= width]


@dataclass(frozen=True)
class Swept:
    """Axes [engine, bandwidth, cores, frequency, kernel], in matrix operations a second: what each point gives, what
    its engines alone would (`vector`), and what memory and matrix units would (`without_engines`). `binding` indexes
    `domains`."""

    engines: Sequence[Deca]
    rates: NDArray[np.float64]
    binding: NDArray[np.intp]
    domains: Sequence[str]
    vector: NDArray[np.float64]
    without_engines: NDArray[np.float64]

    @property
    def leaves_vector(self) -> NDArray[np.bool_]:
        """[engine, bandwidth, cores, frequency]: whether the engine costs no kernel more than NEGLIGIBLE."""
        return np.asarray((self.vector * (1 + NEGLIGIBLE) >= self.without_engines).all(-1))


def sweep(machine: Machine, kernels: Sequence[Kernel], space: Space) -> Swept:
    """All points of `space` for all `kernels`, at once."""
    engines = space.engines
    if not engines or not kernels:
        raise ValueError("a search wants at least one kernel, and an engine with no more tables than its width")
    bandwidth, cores, frequency = (
        np.asarray(factors, float).reshape(shape)
        for factors, shape in (
            (space.bandwidths, (1, -1, 1, 1, 1)),
            (space.cores, (1, 1, -1, 1, 1)),
            (space.frequencies, (1, 1, 1, -1, 1)),
        )
    )
    demands = [[engine.demands(*kernel) for kernel in kernels] for engine in engines]
    speed = cores * frequency
    rates = {
        MEMORY: machine.memory.bandwidth * bandwidth,
        VECTOR: machine.cycles_per_second * speed,
        MATRIX: machine.matrix_rate * speed,
    }
    asked = {
        domain: np.array([[one[domain] for one in row] for row in demands])[:, None, None, None, :] for domain in rates
    }
    without_engines = bounds(*({domain: one[domain] for domain in (MEMORY, MATRIX)} for one in (rates, asked)))[0]
    achieved, binding, domains = bounds(rates, asked)
    return Swept(engines, achieved, binding, domains, limits(rates, asked)[VECTOR], without_engines)


@dataclass(frozen=True)
class Design:
    """Factors on a machine's bandwidth, cores and frequency, and the smallest engine that is enough there, if any."""

    bandwidth: float
    cores: float
    frequency: float
    engine: Deca | None


def designs(machine: Machine, kernels: Sequence[Kernel], space: Space) -> list[Design]:
    """For every variant of the machine, the engine with the fewest tables, then the least width, that costs none of
    `kernels` anything. Tables are what an engine's area is made of."""
    swept = sweep(machine, kernels, space)
    is_enough = swept.leaves_vector
    variants = product(enumerate(space.bandwidths), enumerate(space.cores), enumerate(space.frequencies))
    chosen = []
    for (b, bandwidth), (c, cores), (f, frequency) in variants:
        enough = [engine for e, engine in enumerate(swept.engines) if is_enough[e, b, c, f]]
        engine = min(enough, key=lambda one: (one.tables, one.width), default=None)
        chosen.append(Design(bandwidth, cores, frequency, engine))
    return chosen


def smallest(machine: Machine, kernels: Sequence[Kernel], space: Space | None = None) -> Deca | None:
    """The smallest engine for the machine as it is, of `space`; None where none is enough."""
    engines = space or Space()
    return designs(machine, kernels, Space(engines.widths, engines.tables))[0].engine
