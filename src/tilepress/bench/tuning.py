"""Row limits of this machine: every variant of a linear layer timed at several batches, for each class of weights.

As in `bench linear`, weights rotate through copies that caches do not hold, and variants take turns. A limit is set
where the sum of all batches' times is least; the built-in one stays unless another saves KEEP of the time.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from .. import _native, kernels
from ..formats import Integer, parse_weight
from ..kernels.linear import native_rounding
from ..kernels.tuning import Limit
from ..tiles import PackedMatrix
from ..tiles.native import REAL_NAMES
from .linear import Contestant, copies_in_turn, pack_contestant
from .peers import TORCH
from .race import Step, free_memory, race, torch_threads

FORMATS = ("int4:g32", "uint4:g32", "mxfp4", "int8:g32", "e4m3", "bf16")  # one for each kind of weights
DENSITIES = (1.0, 0.5)
FLOATS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Of two limbs: nine bits have variants of their own.
INTEGERS = {"int8": ("int8",), "two_limbs": ("bfp:g32:m8", "bfp:g32:m10")}
KEEP = 0.02  # of the time, mean over batches
LOST = 1.5  # times as long as a later variant, at two batches in a row: it will not win any more
MEMORY = 512 << 20  # bytes of copies of weights


@dataclass(frozen=True)
class TuningRun:
    """What is timed: a matrix [size, size], at each of the batches, `repeats` calls of each variant."""

    size: int = 2048
    batches: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    repeats: int = 9
    formats: Sequence[str] = FORMATS


Times = dict[str, list[float]]  # operation → seconds at the first batches


def steps(run: TuningRun) -> int:
    """How often `measure_limits` will call its `step`."""
    return len(run.formats) * len(DENSITIES)


def measure_limits(threads: int | None, run: TuningRun, step: Step = lambda text: None) -> list[Limit]:
    """Limits of all operations that compete here, of the instruction set in force."""
    limits: dict[tuple[str, str, str], int] = {}
    with torch_threads(threads) as count:
        weight = torch.randn(run.size, run.size, generator=torch.Generator().manual_seed(0))
        for format in run.formats:
            for density in DENSITIES:
                contestant = Contestant(parse_weight(format), density)
                step(str(contestant))
                packed = pack_contestant(weight, contestant, count)
                for limit, rows in _limits_of(packed, run):
                    limits.setdefault(limit, rows)
    return [(*limit, rows) for limit, rows in limits.items()]


def fit(times: Mapping[str, Sequence[float]], batches: Sequence[int], built_in: Mapping[str, int]) -> dict[str, int]:
    """Operation → rows up to which it is to be chosen, of all but the last. `times`: in the order in which they are
    tried; an operation that was given up has times at the first batches only."""
    *limited, last = times
    later, limits = list(times[last]), {}
    for operation in reversed(limited):
        own = times[operation]
        costs = [_cost(own, later, count) for count in range(len(own) + 1)]
        before = min(sum(batch <= built_in[operation] for batch in batches), len(own))
        best = costs.index(min(costs))
        if costs[before] - costs[best] < KEEP:
            best, limits[operation] = before, built_in[operation]
        else:
            limits[operation] = batches[best - 1] if best else 0
        later = [*own[:best], *later[best:]]
    return limits


def _cost(own: Sequence[float], later: Sequence[float], count: int) -> float:
    """Mean of the logarithms of times, where the first `count` batches are one operation's."""
    return sum(map(math.log, [*own[:count], *later[count:]])) / len(later)


def _limits_of(packed: PackedMatrix, run: TuningRun) -> Iterator[tuple[tuple[str, str, str], int]]:
    turn = copies_in_turn(packed, min(free_memory(), MEMORY))
    built_in = {limit[:3]: limit[3] for limit in _native.row_limits(kernels.active_isa(), True)}
    weights = packed.native.weight_class
    for name, dtype, activations in _activations(packed):
        candidates = _candidates(packed, dtype, activations)
        if len(candidates) < 2:
            continue
        times = _times(turn, candidates, dtype, activations, run)
        known = {operation: built_in[operation, weights, name] for operation in candidates[:-1]}
        for operation, rows in fit(times, run.batches, known).items():
            yield (operation, weights, name), rows


def _activations(packed: PackedMatrix) -> Iterator[tuple[str, torch.dtype, str]]:
    """Kind of activations, type of x, and what it is made into."""
    for name, dtype in FLOATS.items():
        yield name, dtype, "float"
    if isinstance(packed.format.element, Integer):
        for name, roundings in INTEGERS.items():
            yield from ((name, torch.float32, rounding) for rounding in roundings)


def _candidates(packed: PackedMatrix, dtype: torch.dtype, activations: str) -> list[str]:
    if activations == "float":
        return packed.native.float_candidates(REAL_NAMES[dtype])
    return packed.native.integer_candidates(*native_rounding(activations))


def _times(
    turn: Iterator[PackedMatrix], candidates: Sequence[str], dtype: torch.dtype, activations: str, run: TuningRun
) -> Times:
    times: Times = {operation: [] for operation in candidates}
    active = list(candidates)
    for batch in run.batches:
        x = torch.randn(batch, run.size, generator=torch.Generator().manual_seed(1)).to(dtype)
        calls = [partial(_call, turn, x, activations, operation) for operation in active]
        for operation, seconds in zip(active, race(calls, [TORCH] * len(calls), run.repeats), strict=True):
            times[operation].append(seconds)
        active = [operation for operation in active if not _is_lost(operation, active, times)]
    return times


def _is_lost(operation: str, active: Sequence[str], times: Times) -> bool:
    later = [times[name] for name in active[active.index(operation) + 1 :]]
    own = times[operation]
    return len(own) > 1 and any(all(own[at] > LOST * other[at] for at in (-1, -2)) for other in later)


def _call(turn: Iterator[PackedMatrix], x: torch.Tensor, activations: str, operation: str) -> None:
    kernels.linear(x, next(turn), activations=activations, variant=operation)
