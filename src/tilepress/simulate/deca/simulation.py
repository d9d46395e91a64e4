"""One GeMM on one system: time, speed, how busy each part was, and what the engine waited for."""

from dataclasses import dataclass

import numpy as np

from ...formats import WeightFormat, parse_weight
from ...hardware import Machine
from ...hardware.machine import TILE_WEIGHTS
from ...roofsurface import row_tiles
from . import engine
from .plan import Plan, Trace
from .systems import Accelerated, Baseline, System
from .workload import Workload, random_workload

WEIGHTS = 250_000_000  # DECA, section 7: "about", as in the large layers of Llama-2-70B
BF16 = parse_weight("bf16")


@dataclass(frozen=True)
class Result:
    """Shares are of the time that the slowest core takes, and of what the machine can do at most in it.

    `stalls`: cycles a tile in which the decompressor had nothing to do, by what it waited for. `lines`: of weights, by
    who asked for them. `trace`: of every tile.
    """

    seconds: float
    flops: float
    cycles_per_tile: float
    memory: float
    matrix: float
    decompressor: float
    stalls: dict[str, float]
    lines: dict[str, int]
    plan: Plan
    trace: Trace


def simulate(
    machine: Machine,
    system: System,
    format: WeightFormat,
    density: float = 1.0,
    batch: int = 1,
    weights: int = WEIGHTS,
    seed: int = 0,
    work: Workload | None = None,
) -> Result:
    """A GeMM of `weights` weights, random bitmasks if sparse, or of `work`. Up to 16 rows, or one row tile of more."""
    if work is None:
        tiles = -(-weights // (TILE_WEIGHTS * machine.cores))
        width = system.engine.width if isinstance(system, Accelerated) else 32
        work = random_workload(format, density, tiles, machine.cores, min(width, 32), seed)
    if isinstance(system, Baseline) and (work.format != BF16 or work.sparse):
        raise ValueError("the baseline multiplies dense bf16; compressed weights want software or DECA")
    plan = system.plan(machine, work)
    return _result(machine, system, work, plan, engine.run(plan), batch)


def _result(machine: Machine, system: System, work: Workload, plan: Plan, trace: Trace, batch: int) -> Result:
    cycles, tiles = trace.cycles, work.cores * work.tiles
    seconds = cycles / machine.frequency
    return Result(
        seconds=seconds,
        flops=TILE_WEIGHTS * batch / row_tiles(batch, machine) * tiles / seconds,
        cycles_per_tile=cycles / work.tiles,
        memory=work.bits / 8 / seconds / machine.memory.bandwidth,
        matrix=plan.matrix * work.tiles / cycles,
        decompressor=system.busy(machine, work) / cycles,
        stalls=_stalls(plan, trace),
        lines={"demanded": trace.demanded, "prefetched": trace.prefetched, "dropped": trace.dropped},
        plan=plan,
        trace=trace,
    )


def _stalls(plan: Plan, trace: Trace) -> dict[str, float]:
    """Idle cycles of the decompressor before each tile: while its lines were not there, while the core had not called
    for it, and while they came through the cache."""
    busy_until = trace.start + plan.cycles + plan.switch
    free = np.concatenate([np.zeros_like(busy_until[:, :1]), busy_until[:, :-1]], axis=1)
    called = np.clip(trace.issue - free, 0, None)
    waited = np.clip(trace.arrive - np.maximum(free, trace.issue), 0, None)
    idle = trace.start - free
    return {
        "not called": float(called.mean()),
        "memory": float(waited.mean()),
        "cache": float(np.clip(idle - called - waited, 0, None).mean()),
    }
