"""The Roof-Surface of a machine: how fast a kernel may run, what binds it, and what to change."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..formats import WeightFormat
from ..hardware import Machine
from ..hardware.machine import TILE_WEIGHTS
from .decompressors import Decompressor
from .domains import MATRIX, MEMORY, VECTOR, Bound, bound

ROOFLINE = {MEMORY, MATRIX}  # what the classical model knows
UNITS = {MEMORY: "bytes", VECTOR: "vector operations", MATRIX: "matrix operations"}


@dataclass(frozen=True)
class Prediction:
    """`demands` are of one matrix operation, `surface` and `roofline` limits in matrix operations a second; `rows` of
    activations go into one operation. A multiply-add counts as one operation in `flops`, as in the paper."""

    format: WeightFormat
    density: float
    demands: Mapping[str, float]
    surface: Bound
    roofline: Bound
    rows: float

    @property
    def flops(self) -> float:
        return TILE_WEIGHTS * self.rows * self.surface.rate

    @property
    def roofline_flops(self) -> float:
        return TILE_WEIGHTS * self.rows * self.roofline.rate

    @property
    def bandwidth(self) -> float:
        """Bytes of compressed weights a second."""
        return self.demands[MEMORY] * self.surface.rate

    @property
    def advice(self) -> str:
        """What would move the kernel out of the region it is in."""
        binding, next_one = self.surface.binding, self.surface.runner_up
        if next_one is None:
            return f"only {binding} counts"
        times, demand = self.surface.headroom, self.demands[binding]
        what = UNITS.get(binding, f"operations of the {binding}")
        wish = "" if binding == MATRIX else f" or {demand / times:.4g} {what} instead of {demand:.4g}"
        return f"{times:.2f}× the {binding} rate{wish}: then {next_one} binds"


def expected_time(surface: Bound, overlap: float) -> float:
    """Seconds of one operation where memory's time and the core's hide behind each other by `overlap`; 1 is the limit
    itself. A core's own domains are busy together: its slowest counts."""
    memory = 1 / surface.limits[MEMORY]
    core = max((1 / limit for domain, limit in surface.limits.items() if domain != MEMORY), default=0.0)
    return max(memory, core) + (1 - overlap) * min(memory, core)


def row_tiles(batch: int, machine: Machine) -> int:
    """Matrix operations that a weight tile takes part in: one for each row tile, all rows that the machine
    takes at once."""
    if batch < 1:
        raise ValueError(f"a batch has at least one row, not {batch}")
    return -(-batch // (machine.matrix.rows if machine.matrix else 1))


def predict(
    machine: Machine,
    format: WeightFormat,
    density: float,
    decompressor: Decompressor,
    batch: int = 1,
    *,
    reuse: bool = True,
) -> Prediction:
    """Equation 2, with the roofline beside it. Above 16 rows a weight tile serves several matrix operations (12.2), if
    its decompressed form is kept for them (`reuse`)."""
    check_density(density)
    several = row_tiles(batch, machine)
    demands = _per_operation(decompressor.demands(format, density), several if reuse else 1)
    rates = decompressor.rates(machine)
    surface, roofline = bound(rates, demands), bound(rates, {name: demands[name] for name in ROOFLINE & demands.keys()})
    return Prediction(format, density, demands, surface, roofline, batch / several)


def check_density(density: float) -> None:
    if not 0 < density <= 1:
        raise ValueError(f"a density is above 0 and at most 1, not {density:g}")


def _per_operation(demands: Mapping[str, float], times: int) -> dict[str, float]:
    return {domain: demand if domain == MATRIX else demand / times for domain, demand in demands.items()}
