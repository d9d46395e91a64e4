"""`tilepress simulate`: hardware that is not at hand, to the cycle."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from . import simulate_array, simulate_unit
from .completion import weight_formats
from .machines import MachineName, find_machine
from .output import Json, Recorder, progress, show_declared, show_figures
from .report import write_page

if TYPE_CHECKING:
    from ..formats import WeightFormat
    from ..hardware import Machine
    from ..records import Label
    from ..simulate.deca import Accelerated, Result, System, Workload
    from ..simulate.deca.systems import Prefetcher

DRAWN = 40  # tiles on a page


class SystemName(StrEnum):
    deca = "deca"
    software = "software"
    more_vectors = "software-more-vectors"
    wider_vectors = "software-wider-vectors"
    baseline = "baseline"


class Prefetch(StrEnum):
    none = "none"
    l2 = "l2"
    deca = "deca"


app = typer.Typer(help="Simulate hardware.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Simulate hardware."""


@app.command()
def deca(
    machine: MachineName = "spr-hbm",
    system: Annotated[SystemName, typer.Option(help="What decompresses.")] = SystemName.deca,
    engine: Annotated[str, typer.Option(help="The engine: deca:wWIDTH:lTABLES.")] = "deca:w32:l8",
    weights: Annotated[str, typer.Option(autocompletion=weight_formats, help="The weight format.")] = "mxfp4",
    density: Annotated[float, typer.Option(help="Share of weights kept; 1 is dense.")] = 1.0,
    batch: Annotated[int, typer.Option(min=1, help="Rows of activations; more than 16 go 16 at a time.")] = 1,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores, if not the machine's.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="GB/s of memory, if not the machine's.")] = None,
    latency: Annotated[float | None, typer.Option(help="ns from L2 to memory and back; the fitted one.")] = None,
    dram: Annotated[
        bool, typer.Option("--dram", help="Time the machine's DRAM: channels, banks, rows, refresh; not one queue.")
    ] = False,
    packed: Annotated[
        Path | None, typer.Option(help="A packed file: take --layer's format and bitmasks from there.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="The matrix in it, as inspect names it; the first.")] = None,
    parameters: Annotated[int, typer.Option(min=1, help="Weights of the GeMM.")] = 250_000_000,
    prefetcher: Annotated[Prefetch, typer.Option(help="Who brings weights ahead.")] = Prefetch.deca,
    degree: Annotated[int, typer.Option(min=1, help="Tiles that DECA's prefetcher runs ahead.")] = 5,
    l2: Annotated[bool, typer.Option("--l2/--llc", help="Where DECA reads weights; from the LLC, none ahead.")] = True,
    registers: Annotated[bool, typer.Option("--registers/--through-l2", help="How tiles come to the core.")] = True,
    tepl: Annotated[bool, typer.Option("--tepl/--fence", help="How the core calls DECA.")] = True,
    queue: Annotated[int, typer.Option(min=1, help="Entries of the core's queue of such calls.")] = 8,
    flush_every: Annotated[
        int, typer.Option(min=0, help="One of so many calls, and all after it, are squashed; 0 is none.")
    ] = 0,
    flush_after: Annotated[int, typer.Option(min=1, help="Cycles from a call to its squash.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the random bitmasks.")] = 0,
    model: Annotated[str | None, typer.Option(help="Also the next token of llama2-70b or opt-66b.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the first tiles of a core and all figures to this page.")
    ] = None,
    trace: Annotated[int, typer.Option(min=0, help="Also record when this many first tiles of a core were where.")] = 0,
    band: Annotated[
        bool, typer.Option("--band", help="Also the least and the most over memory latencies, kinds and degrees.")
    ] = False,
    fitted: Annotated[
        bool, typer.Option("--fitted", help="Only list what was fitted, and what was chosen with which cells in sight.")
    ] = False,
    json: Json = False,
) -> None:
    """Simulate a GeMM with compressed weights: DECA beside each core, software that decompresses, or neither.

    Every core has its tiles and shares the memory with all. Shares are of what memory, matrix units and decompressors
    could do at most. Stalls are cycles a tile in which the decompressor had nothing to do. Lines are those of the first
    16 rows; those demanded are L2 misses. Bitmasks are random, or those of a packed file. Figures depend on the latency
    of memory, which no paper prints: --band shows how far. Beside the simulation stands what a closed form gives.

    Example: tilepress simulate deca --weights bf8 --density 0.05 --html tiles.html
    Example: tilepress simulate deca --weights bf8 --density 0.05 --band
    Example: tilepress simulate deca --packed layer.safetensors --cores 8 --bandwidth 100
    """
    if fitted:
        _fitted(json)
        return
    from ..formats import parse_weight
    from ..simulate.deca import Accelerated
    from ..simulate.deca.simulation import changed

    target = changed(find_machine(machine, quiet=json), cores, bandwidth, latency)
    made = _system(system, engine, prefetcher, degree, l2, registers, tepl, queue, flush_every, flush_after)
    width = min(made.engine.width, 32) if isinstance(made, Accelerated) else 32
    work = _packed(packed, layer, target, width) if packed else None
    format, density = (work.format, work.density) if work else (parse_weight(weights), density)
    run = _Run(target, format, density, batch, parameters, seed, work, json)
    result = run.result(made, dram)
    labels: dict[str, Label] = {"target": target.name, "system": str(made), "format": str(format), "density": density}
    recorder = Recorder("simulated", **labels)
    _record(recorder, result)
    _record_closed_form(recorder, run, made)
    if band:
        _record_band(recorder, run, made)
    _record_tiles(recorder, result, trace)
    if isinstance(made, Accelerated):
        _record_cost(recorder, made, target)
    if model:
        _next_token(recorder, run, made, model)
    if html:
        tiles = Recorder("simulated", **labels)
        _record_tiles(tiles, result, DRAWN)
        records = list(dict.fromkeys([*recorder.records, *tiles.records]))
        title = f"{target.title}: {made}, {format} at {100 * density:g} %"
        write_page(html, title, records, with_explorer=False)
    title = f"{target.name}, {made}, {format}@{100 * density:g}%"
    show_figures(recorder, title, ("target", "system", "format", "density"), json)


def _packed(path: Path, layer: str | None, machine: "Machine", width: int) -> "Workload":
    from ..simulate.deca import packed_workload
    from ..tiles import load, read_header

    names = list(read_header(path))
    chosen = layer or names[0]
    if chosen not in names:
        raise ValueError(f"{path} has no matrix {chosen!r}; there are {', '.join(names[:3])} …: see tilepress inspect")
    return packed_workload(load(path, [chosen])[chosen], machine.cores, width)


def _system(
    name: SystemName,
    engine: str,
    prefetcher: Prefetch,
    degree: int,
    l2: bool,
    registers: bool,
    tepl: bool,
    queue: int,
    flush_every: int,
    flush_after: int,
) -> "System":
    from ..roofsurface import Deca, parse_decompressor
    from ..simulate.deca import Accelerated, Baseline, Software

    if name is SystemName.baseline:
        return Baseline()
    if name is SystemName.deca:
        made = parse_decompressor(engine)
        if not isinstance(made, Deca):
            raise ValueError(f"an engine is written deca:w32:l8, say, not {engine!r}")
        ahead: Prefetcher = prefetcher.value if l2 else "none"
        return Accelerated(made, l2, ahead, degree, registers, tepl, queue, flush_every, flush_after)
    if name is SystemName.software:
        return Software()
    return Software("more" if name is SystemName.more_vectors else "wider")


class _Run(NamedTuple):
    """What all simulations of a call share."""

    machine: "Machine"
    format: "WeightFormat"
    density: float
    batch: int
    parameters: int
    seed: int
    work: "Workload | None"
    quiet: bool

    def result(self, system: "System", dram: bool, machine: "Machine | None" = None) -> "Result":
        from ..simulate.deca import simulate

        kernel = (self.format, self.density, self.batch, self.parameters, self.seed, self.work, dram)
        with progress(self.quiet) as bar:
            bar.add_task("simulating", total=None)
            return simulate(machine or self.machine, system, *kernel)


def _record(recorder: Recorder, result: "Result") -> None:
    recorder.add("time", result.seconds * 1e3, "ms")
    recorder.add("rate", result.flops / 1e12, "TFLOPS")
    recorder.add("cycles_per_tile", result.cycles_per_tile, "cycle")
    busy = {"memory": result.memory, "matrix": result.matrix, "decompressor": result.decompressor}
    for part, share in busy.items():
        recorder.add("busy", 100 * share, "%", part=part)
    for cause, cycles in result.stalls.items():
        recorder.add("stall", cycles, "cycle", cause=cause)
    for requester, count in result.lines.items():
        recorder.add("lines", count, "line", requester=requester)
    if result.plan.flush_every:
        for stage, count in result.squashed.items():
            recorder.add("squashed", count, "call", stage=stage)


def _record_closed_form(recorder: Recorder, run: _Run, system: "System") -> None:
    from ..simulate.deca.closed_form import cycles_per_tile

    cycles = cycles_per_tile(run.machine, system, run.format, run.density, run.batch)
    recorder.add("closed_form_cycles_per_tile", cycles, "cycle", "model")


def _record_band(recorder: Recorder, run: _Run, system: "System") -> None:
    from ..simulate.deca.band import band

    rates = [run.result(one, memory.dram, memory.of(run.machine)).flops for memory, one in band(system)]
    recorder.add("rate_least", min(rates) / 1e12, "TFLOPS")
    recorder.add("rate_most", max(rates) / 1e12, "TFLOPS")


def _record_tiles(recorder: Recorder, result: "Result", count: int) -> None:
    """Step by step, as pages draw them."""
    from ..simulate.deca.timeline import steps

    for tile in range(min(count, result.trace.issue.shape[1])):
        for step, (first, cycles) in steps(result, 0, tile).items():
            recorder.add("start", first, "cycle", tile=tile, step=step)
            recorder.add("cycles", cycles, "cycle", tile=tile, step=step)


def _record_cost(recorder: Recorder, system: "Accelerated", machine: "Machine") -> None:
    """Of the engines of all cores, at 7 nm."""
    from ..simulate.deca.area import area, power

    total = machine.cores * sum(area(system.engine).values())
    recorder.add("area", total, "mm2", "model")
    busy = machine.cores * sum(power(system.engine, machine.frequency).values())
    recorder.add("power", busy, "W", "model")


def _next_token(recorder: Recorder, run: _Run, system: "System", model: str) -> None:
    from ..simulate.deca.next_token import MODELS, next_token

    if model.lower() not in MODELS:
        raise ValueError(f"no model {model!r}; there are {', '.join(MODELS)}")
    with progress(run.quiet) as bar:
        bar.add_task("simulating the model", total=None)
        token = next_token(run.machine, system, MODELS[model.lower()], run.format, run.density, run.batch)
    recorder.add("next_token_time", token.total * 1e3, "ms", model=model)
    recorder.add("next_token_gemm_time", token.gemms * 1e3, "ms", model=model)


def _fitted(json: bool) -> None:
    from ..simulate.deca import CHOICES, FITTED

    show_declared(Recorder(), "deca", FITTED, CHOICES, json)


app.command()(simulate_unit.unit)
app.command()(simulate_array.array)
app.command()(simulate_array.compare)
