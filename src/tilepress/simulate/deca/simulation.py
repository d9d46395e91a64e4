"""One GeMM on one system: time, speed, how busy each part was, and what the engine waited for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats import WeightFormat, parse_weight
from ...hardware import Machine
from ...hardware.machine import TILE_WEIGHTS
from ...roofsurface import row_tiles
from . import engine
from .plan import Plan, Stage, Trace
from .systems import Accelerated, Baseline, System
from .workload import Workload, random_workload

WEIGHTS = 250_000_000  # DECA, section 7: "about", as in the large layers of Llama-2-70B
BF16 = parse_weight("bf16")


@dataclass(frozen=True)
class Result:
    """Of all rows; shares are of the time that the slowest core takes, and of what the machine can do at most in it.

    `stalls`: cycles a tile in which the decompressor had nothing to do, by what it waited for. `lines`: of weights, by
    who asked for them, and of activations. `squashed`: calls of the engine, by where they were. These and `plan` and
    `trace` are of the first row panel.
    """

    seconds: float
    flops: float
    cycles_per_tile: float
    memory: float
    matrix: float
    decompressor: float
    stalls: dict[str, float]
    lines: dict[str, int]
    squashed: dict[str, int]
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
    dram: bool = False,
) -> Result:
    """A GeMM of `weights` weights, random bitmasks if sparse, or of `work`. Memory is a queue with one latency, as in
    the simulator of the paper, or, with `dram`, the machine's channels, banks, rows and refreshes.

    More than 16 rows are several row panels. The paper does not say how a GeMM goes through them, and contradicts
    itself: section 12.2 has a tile decompressed once for all of them, but in table 6 compressed weights take about four
    times as long with 64 rows as with 16, and uncompressed ones half of that. So here a compressed GeMM runs once for
    each panel, and an uncompressed one reads its tiles again from the last level of cache. This reading was chosen with
    table 6 in sight.
    """
    machine = machine if dram else _without_dram(machine)
    if work is None:
        tiles = -(-weights // (TILE_WEIGHTS * machine.cores))
        width = system.engine.width if isinstance(system, Accelerated) else 32
        work = random_workload(format, density, tiles, machine.cores, min(width, 32), seed)
    if isinstance(system, Baseline) and (work.format != BF16 or work.sparse):
        raise ValueError("the baseline multiplies dense bf16; compressed weights want software or DECA")
    panels = row_tiles(batch, machine)
    rows = -(-batch // panels)
    plan = system.plan(machine, work, rows)
    trace = engine.run(plan)
    reads, further = panels, trace.cycles
    if panels > 1 and isinstance(system, Baseline):
        reads, further = 1, engine.run(system.plan(_from_cache(machine), work, rows)).cycles
    cycles = trace.cycles + (panels - 1) * further
    return _result(machine, system, work, plan, trace, batch, panels, reads, cycles)


def changed(
    machine: Machine, cores: int | None = None, bandwidth: float | None = None, latency: float | None = None
) -> Machine:
    """The machine with what is known better of it: GB/s of memory, ns from the L2 cache to memory and back."""
    if (bandwidth is not None and bandwidth <= 0) or (latency is not None and latency <= 0):
        raise ValueError("a bandwidth and a latency are above 0")
    fields: dict[str, Any] = {"cores": cores} if cores else {}
    if bandwidth:
        fields["memory"] = {"bandwidth": bandwidth * 1e9, "mesh_bandwidth": bandwidth * 1e9}
    if latency and machine.caches:  # without any, the simulation says what is missing
        fields["caches"] = {"memory_latency": latency}
    return machine.changed(**fields)


def _from_cache(machine: Machine) -> Machine:
    """The same machine with the last level of cache for its memory."""
    assert machine.caches is not None
    rate = machine.caches.llc_rate * machine.cycles_per_second
    return _without_dram(machine).changed(memory={"bandwidth": rate})


def _without_dram(machine: Machine) -> Machine:
    if machine.memory.dram is None:
        return machine
    return machine.changed(memory={"dram": None, "mesh_bandwidth": None, "path_latency": None})


def _result(
    machine: Machine,
    system: System,
    work: Workload,
    plan: Plan,
    trace: Trace,
    batch: int,
    panels: int,
    reads: int,
    cycles: int,
) -> Result:
    """`reads`: how often weights are read from memory."""
    seconds = cycles / machine.frequency
    return Result(
        seconds=seconds,
        flops=TILE_WEIGHTS * batch * work.cores * work.tiles / seconds,
        cycles_per_tile=cycles / work.tiles,
        memory=reads * work.bits / 8 / seconds / machine.memory.bandwidth,
        matrix=panels * plan.matrix * work.tiles / cycles,
        decompressor=panels * system.busy(machine, work) / cycles,
        stalls=_stalls(plan, trace),
        lines={
            "demanded": trace.demanded,
            "prefetched": trace.prefetched,
            "dropped": trace.dropped,
            "activations demanded": trace.activations_demanded,
            "activations prefetched": trace.activations_prefetched,
            "activations from memory": trace.activations_fetched,
        },
        squashed={stage.name: count for stage, count in zip(Stage, trace.squashed, strict=True)},
        plan=plan,
        trace=trace,
    )


def _stalls(plan: Plan, trace: Trace) -> dict[str, float]:
    """Idle cycles of the decompressor's first stage for each tile: before it began, while the core had not called for
    it and while its lines were not there; the rest, before and between its operations, came through the cache."""
    free = trace.end + plan.switch
    free = np.concatenate([np.zeros_like(free[:, :1]), free[:, :-1]], axis=1)
    called = np.clip(np.minimum(trace.issue, trace.start) - free, 0, None)
    idle = trace.end - free - plan.cycles
    late = np.clip(trace.arrive - np.maximum(free, trace.issue), 0, None)
    waited = np.minimum(late, idle - called)
    return {
        "not called": float(called.mean()),
        "memory": float(waited.mean()),
        "cache": float((idle - called - waited).mean()),
    }
