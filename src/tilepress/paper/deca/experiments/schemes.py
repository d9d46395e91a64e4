"""What several of DECA's items run: its compression schemes, on its systems."""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ....formats import WeightFormat
    from ....roofsurface import Decompressor, Prediction
    from ....simulate.deca import System
    from ....simulate.deca.band import Memory

WEIGHTS = 30_000_000  # of a simulated GeMM: tiles enough for 56 cores that starting does not count


class Scheme(NamedTuple):
    """A compression scheme by the paper's name."""

    name: str
    weights: str
    density: float

    @property
    def format(self) -> "WeightFormat":
        from ....formats import parse_weight

        return parse_weight(self.weights)


class Speed(NamedTuple):
    """Of a simulated GeMM; shares as in `simulate.deca.Result`, lines as shares of all of weights."""

    seconds: float
    tflops: float
    memory: float
    matrix: float
    decompressor: float
    demanded: float
    prefetched: float
    activations_demanded: float
    activations_prefetched: float


DENSITIES = (0.5, 0.3, 0.2, 0.1, 0.05)
Q4, Q8 = Scheme("Q4", "mxfp4", 1.0), Scheme("Q8", "bf8", 1.0)
Q8_SPARSE = [Scheme(f"Q8_{density:.0%}", "bf8", density) for density in DENSITIES]
Q16_SPARSE = [Scheme(f"Q16_{density:.0%}", "bf16", density) for density in DENSITIES]
Q16 = Scheme("Q16", "bf16", 1.0)
Q8_5, Q8_30 = Q8_SPARSE[-1], Q8_SPARSE[1]
# In increasing compression, as figures 11 and 12 have them.
SCHEMES = [
    Q16_SPARSE[0], Q8, Q16_SPARSE[1], Q8_SPARSE[0], Q4, Q16_SPARSE[2], Q8_SPARSE[1], Q16_SPARSE[3], Q8_SPARSE[2],
    Q16_SPARSE[4], Q8_SPARSE[3], Q8_SPARSE[4],
]  # fmt: skip


@lru_cache(maxsize=512)
def speed(
    machine: str,
    system: "System",
    scheme: Scheme,
    batch: int = 1,
    weights: int = WEIGHTS,
    cores: int = 0,
    memory: "Memory | None" = None,
) -> Speed:
    """A GeMM of `weights` weights for each 56 cores, simulated once and remembered; `memory`, if not the fitted one."""
    from ....hardware import read_machine
    from ....simulate.deca import simulate

    simulated = read_machine(machine)
    if cores:
        simulated, weights = simulated.changed(cores=cores), weights * cores // simulated.cores
    if memory:
        simulated = memory.of(simulated)
    dram = memory is not None and memory.dram
    one = simulate(simulated, system, scheme.format, scheme.density, batch, weights, dram=dram)
    lines = one.lines["demanded"] + one.lines["prefetched"]
    names = ("demanded", "prefetched", "activations demanded", "activations prefetched")
    shares = [one.lines[name] / lines for name in names]
    return Speed(one.seconds, one.flops / 1e12, one.memory, one.matrix, one.decompressor, *shares)


def prediction(machine: str, scheme: Scheme, decompressor: "Decompressor", batch: int) -> "Prediction":
    from ....hardware import read_machine
    from ....roofsurface import predict

    return predict(read_machine(machine), scheme.format, scheme.density, decompressor, batch)


def token_time(model: str, name: str, scheme: Scheme, batch: int, weights: int) -> float:
    """Milliseconds, with 128 tokens before and 128 written: 192 in the cache on average."""
    from ....hardware import read_machine
    from ....simulate.deca import Accelerated, Baseline, Software
    from ....simulate.deca.next_token import MODELS, next_token

    system = Baseline() if scheme == Q16 else Software() if name == "software" else Accelerated()
    machine, transformer = read_machine("spr-hbm"), MODELS[model.lower()]
    return 1e3 * next_token(machine, system, transformer, scheme.format, scheme.density, batch, 192, weights).total
