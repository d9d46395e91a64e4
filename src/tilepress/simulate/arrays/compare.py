"""Designs side by side: arrays and a CPU with DECA on one task, one technology and one memory; and fronts of Pareto.

Arrays are given the same area, technology, clock and memories. The CPU keeps its cores and clock and is given the same
memory bandwidth; of its energy only what memory and its engines take is known, of its area the engines.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from ...formats import parse_weight
from ...formats.kv import parse_kv
from ...hardware import Accelerator, Machine, read_accelerator, read_machine
from ...hardware.machine import TILE_WEIGHTS
from ...hardware.technology import area_scale, energy_scale
from ...roofsurface import row_tiles
from ..deca import Accelerated
from ..deca import area as engine_costs
from ..deca import simulate as simulate_gemm
from ..deca.parameters import fitted as deca_fitted
from .costs import RTL, fitted_to_area, in_technology, logic_of
from .mapping import BEST, PINNED, Mapper
from .simulation import PICOJOULE, simulate
from .workload import Stage, Task

DECA = "deca"
WEIGHTS = 20_000_000  # of the GeMM that stands for all
MATRIX_ROWS = 16  # that a matrix operation takes at once
ERRORS = 2  # standard errors beyond which a difference of losses counts


@dataclass(frozen=True)
class Setting:
    """What all designs share. `area`: mm² of an array; 0 leaves arrays as they come."""

    node: float = 16
    voltage: float = 0.8
    frequency: float = 285e6
    bandwidth: float = 256e9
    dram_energy: float = 3.9
    area: float = 0.41

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (value > 0 or (name == "area" and value == 0)):
                raise ValueError(f"{name} is above 0, not {value:g}")


@dataclass(frozen=True)
class Figures:
    """Seconds, joules and mm² of a design. `mapping`: of products to the array; the CPU has none. `logic`: where its
    area comes from. `partly`: what energy and area leave out, if anything."""

    design: str
    mapping: str
    stage: Stage
    tokens: int
    seconds: float
    joules: float
    dram_joules: float
    mm2: float
    logic: str
    partly: str = ""


def compare(
    names: Sequence[str],
    tasks: Iterable[Task],
    setting: Setting | None = None,
    mappers: Sequence[Mapper] = (PINNED, BEST),
) -> list[Figures]:
    """Every design on every task, arrays with each of the mappings; `deca` is the CPU."""
    shared, figures = setting or Setting(), []
    designs = [None if name == DECA else shared_array(read_accelerator(name), shared) for name in names]
    for task in tasks:
        for design in designs:
            figures += [_cpu(task, shared)] if design is None else [_array(design, task, one) for one in mappers]
    return figures


def shared_array(machine: Accelerator, setting: Setting) -> Accelerator:
    moved = in_technology(machine, setting.node, setting.voltage, setting.frequency)
    moved = moved.changed(memory={"bandwidth": setting.bandwidth, "energy": setting.dram_energy})
    return fitted_to_area(moved, setting.area) if setting.area else moved


def _array(machine: Accelerator, task: Task, mapper: Mapper) -> Figures:
    result = simulate(machine, task, mapper)
    figures = (result.seconds, result.joules, result.energy["DRAM"], result.mm2)
    return Figures(machine.name, mapper.name, task.stage, task.tokens, *figures, logic_of(machine))


def _cpu(task: Task, setting: Setting) -> Figures:
    """Sapphire Rapids with DECA: linear layers, then attention."""
    machine = read_machine("spr-hbm").changed(memory={"bandwidth": setting.bandwidth})
    linear = _cpu_linear(task, machine) if task.scope != "attention" else (0.0, 0.0)
    attention = _cpu_attention(task, machine) if task.scope != "linear" else (0.0, 0.0)
    seconds, bits = linear[0] + attention[0], linear[1] + attention[1]
    dram = bits * setting.dram_energy * PICOJOULE
    smaller = energy_scale(setting.node, setting.voltage) / energy_scale(engine_costs.NODE, engine_costs.VOLTAGE)
    engines = machine.cores * sum(engine_costs.power().values()) * smaller * seconds
    mm2 = machine.cores * sum(engine_costs.area().values()) * area_scale(setting.node) / area_scale(engine_costs.NODE)
    left_out = "cores and caches are not in energy and area"
    return Figures(DECA, "", task.stage, task.tokens, seconds, dram + engines, dram, mm2, RTL, left_out)


def _cpu_linear(task: Task, machine: Machine) -> tuple[float, float]:
    """Seconds, and bits of weights that are read: once for every 16 rows (docs/deca.md says why)."""
    format, model, passes = parse_weight(task.weights), task.model, row_tiles(task.rows, machine)
    one = simulate_gemm(machine, Accelerated(), format, 1.0, weights=WEIGHTS)
    weights = model.layers * sum(model.products) + model.vocabulary * model.hidden * task.head
    tiles = weights / TILE_WEIGHTS * passes
    return tiles / machine.cores * one.cycles_per_tile / machine.frequency, weights * format.bits_per_weight() * passes


def _cpu_attention(task: Task, machine: Machine) -> tuple[float, float]:
    """Seconds, and bits of keys and values that are read: on the matrix units in 16 bits, or as fast as memory is."""
    model = task.model
    products = 2 * model.width * task.queries * task.tokens * task.batch * model.layers
    rows = min(task.queries * model.heads // model.kv_heads, MATRIX_ROWS)  # queries that share keys
    compute = products / (TILE_WEIGHTS * rows * machine.matrix_rate)
    bits = parse_kv(task.kv or "fp16").bits(task.tokens) * model.kv_width * model.layers * task.batch
    read = bits / 8 / (machine.memory.bandwidth * deca_fitted("memory_share"))
    return max(compute, read), bits


@dataclass(frozen=True)
class Measured:
    """What a format of activations, and of keys and values, costs a model. Empty: as they are. `excess`: nats per token
    more than with nothing rounded, window by window; the windows are the same for all formats."""

    activations: str
    kv: str
    smoothing: str
    excess: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """A machine with a format of activations and of keys and values, and what it takes. `excess`: see `Measured`."""

    machine: str
    activations: str
    kv: str
    excess: tuple[float, ...]
    seconds: float
    joules: float
    mm2: float

    @property
    def loss(self) -> float:
        """% of perplexity."""
        return 100 * math.expm1(mean(self.excess))

    @property
    def loss_error(self) -> float:
        """Standard error of `loss`, to first order: of the excess over windows."""
        return 100 * math.exp(mean(self.excess)) * standard_error(self.excess)


def front(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in one thing without being worse in another. In loss, a point is better or worse than
    another only if their difference, paired by window, exceeds two standard errors."""
    return [one for one in points if not any(_beats(other, one) for other in points)]


def _beats(one: Point, other: Point) -> bool:
    signs = [loss_sign(one, other)]
    signs += [_sign(getattr(one, cost) - getattr(other, cost)) for cost in ("seconds", "joules", "mm2")]
    return min(signs) < 0 and max(signs) <= 0


def loss_sign(one: Point, other: Point) -> int:
    """-1 where `one` loses less than `other` beyond noise, 1 where it loses more, 0 where windows cannot tell."""
    differences = [mine - theirs for mine, theirs in zip(one.excess, other.excess, strict=True)]
    difference = mean(differences)
    return _sign(difference) if abs(difference) > ERRORS * standard_error(differences) else 0


def standard_error(values: Sequence[float]) -> float:
    """Of their mean; they count as independent."""
    return stdev(values) / math.sqrt(len(values))


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def takes(machine: Accelerator, activations: str, kv: str) -> bool:
    """Whether a loss measured with these formats is that of the machine: FIGNA's mantissas are its own, an FP16
    machine's activations as they are, an INT8 machine's int8; Anda attends with FP16; Harmonia in its own format."""
    if machine.stores == "fp16":
        return activations == OWN_FORMATS.get(machine.name, "") and not kv
    if machine.stores == "int8":
        return activations == "int8" and not kv
    attends = any(mode.other == "bfp" for mode in machine.modes)
    group = f"bfp:g{machine.array.group}:"
    return activations.startswith((group, "anda:")) and bool(kv) == attends


# What FP16 machines round activations to on the way to the array.
OWN_FORMATS = {"figna": "bfp:g64:m14", "figna-m11": "bfp:g64:m11", "figna-m8": "bfp:g64:m8", "figna-c": "bfp:g64:m8"}


def points(
    names: Sequence[str],
    losses: Iterable[Measured],
    task: Task,
    setting: Setting | None = None,
    mapper: Mapper = BEST,
) -> list[Point]:
    """Machines on `task`, with every format that a loss was measured of and that they take."""
    shared, points = setting or Setting(), []
    measured = list(losses)
    for name in names:
        machine = shared_array(read_accelerator(name), shared)
        for one in measured:
            if takes(machine, one.activations, one.kv):
                points.append(_point(machine, one, task, mapper))
    return points


def _point(machine: Accelerator, measured: Measured, task: Task, mapper: Mapper) -> Point:
    is_block = machine.stores == "bfp"
    asked = replace(task, activations=measured.activations if is_block else task.activations, kv=measured.kv)
    result = simulate(machine, asked, mapper)
    kv = (measured.kv or machine.kv) + (f"+{measured.smoothing}" if measured.smoothing else "")
    figures = (measured.excess, result.seconds, result.joules, result.mm2)
    return Point(machine.name, measured.activations or "fp16", kv, *figures)
