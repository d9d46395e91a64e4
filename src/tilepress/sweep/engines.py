"""DECA's engine in many sizes, on machines with other memories: time of a GeMM, area and power."""

from collections.abc import Iterator
from functools import lru_cache

from pydantic import Field, model_validator

from ..formats import WeightFormat, parse_weight
from ..hardware import Machine, read_machine
from ..roofsurface import Deca
from ..simulate.deca import Accelerated, simulate
from ..simulate.deca.area import PUBLISHED, area, power
from ..simulate.deca.parameters import DEGREE, QUEUE
from ..simulate.deca.simulation import changed
from .studies import Figure, StudyPoint


class Point(StudyPoint):
    """As of `tilepress simulate deca`: `width` and `tables` of the engine, `queue` of calls, `bandwidth` in GB/s,
    `latency` in ns. A smaller GeMM than there, for speed."""

    machine: str = "spr-hbm"
    width: int = PUBLISHED.width
    tables: int = PUBLISHED.tables
    queue: int = QUEUE
    degree: int = DEGREE
    weights: str = "mxfp4"
    density: float = Field(default=1.0, gt=0, le=1)
    batch: int = Field(default=1, ge=1)
    cores: int | None = Field(default=None, ge=1)
    bandwidth: float | None = None
    latency: float | None = None
    dram: bool = False
    parameters: int = Field(default=10_000_000, ge=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _is_possible(self) -> "Point":
        assert self.system and self.target and self.format
        return self

    @property
    def system(self) -> Accelerated:
        return Accelerated(Deca(self.width, self.tables), degree=self.degree, queue=self.queue)

    @property
    def target(self) -> Machine:
        return _target(self.machine, self.cores, self.bandwidth, self.latency)

    @property
    def format(self) -> WeightFormat:
        return parse_weight(self.weights)

    def figures(self) -> Iterator[Figure]:
        """Area and power: of the engines of all cores, at 7 nm."""
        target, system = self.target, self.system
        kernel = (self.format, self.density, self.batch, self.parameters, self.seed)
        result = simulate(target, system, *kernel, dram=self.dram)
        yield Figure("time", 1e3 * result.seconds, "ms", "simulated")
        yield Figure("rate", result.flops / 1e12, "TFLOPS", "simulated")
        yield Figure("area", target.cores * _area(system.engine), "mm2", "model")
        yield Figure("power", target.cores * _power(system.engine, target.frequency), "W", "model")


@lru_cache
def _target(name: str, cores: int | None, bandwidth: float | None, latency: float | None) -> Machine:
    return changed(read_machine(name), cores, bandwidth, latency)


@lru_cache
def _area(engine: Deca) -> float:
    return sum(area(engine).values())


@lru_cache
def _power(engine: Deca, frequency: float) -> float:
    return sum(power(engine, frequency).values())
