"""`tilepress doctor`: what this machine has, what would run on it, and how fast it reads memory and multiplies."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._extras import MissingExtraError, need_lab
from .busy import Strict, record_idleness, warn_if_busy
from .doctor_tune import forget_tuning, run_tuning
from .doctor_units import record_placement, record_units
from .doctor_verdict import print_verdict
from .machines import measured_machine, record_rates, with_readings
from .output import Json, Recorder, Threads, metric_text, output_width, print_table, progress
from .tables import wrapped

if TYPE_CHECKING:
    from ..bench.idle import Idleness
    from ..records import Record


def doctor(
    machine: Annotated[
        Path | None, typer.Option(help="Also write this machine to a YAML file, for --machine elsewhere.")
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Time variants of linear layers and placements of threads; use the result."),
    ] = False,
    reset_tuning: Annotated[
        bool, typer.Option("--reset-tuning", help="Remove what --tune has stored; built-in limits are used again.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list every kernel and every figure; --json has them all.")
    ] = False,
    strict: Strict = False,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Show the processor, the kernels chosen for it, and the read bandwidth measured now.

    The verdict comes first: what runs, what is missing, whether others use the machine; --all lists all it rests on.
    TILEPRESS_ISA in the environment forces an instruction set; TILEPRESS_TUNING=off ignores what --tune has stored.

    Example: tilepress doctor --machine this.yaml
    """
    if tune and reset_tuning:
        raise ValueError("--tune and --reset-tuning exclude each other")
    if machine and machine.suffix not in (".yaml", ".yml"):
        raise ValueError(f"a machine is written to a file that ends in .yaml, not to {machine}")
    if machine:
        need_lab("`tilepress doctor --machine`")
    if tune:
        return run_tuning(threads, json)
    if reset_tuning:
        forget_tuning()
    recorder = Recorder()
    _processor(recorder, threads)
    _kernels(recorder)
    _bandwidth(recorder, threads, json, machine, strict)
    record_units(recorder)
    record_placement(recorder)
    if json:
        recorder.print_json()
    else:
        print_verdict(recorder.records)
        if show_all:
            _print_all(recorder.records)


def _processor(recorder: Recorder, threads: int | None) -> None:
    import torch

    from .. import __version__, bench, kernels
    from ..kernels import tuning
    from ..records import cpu_model

    recorder.add("version", __version__, package="tilepress")
    recorder.add("version", str(torch.__version__), package="torch")
    recorder.add("cpu_model", cpu_model())
    recorder.add("cpu_features", " ".join(kernels.cpu_features()))
    recorder.add("last_level_cache", bench.last_level_cache_bytes() / 2**20, "MiB")
    recorder.add("supported_isas", " ".join(kernels.supported_isas()))
    recorder.add("active_isa", kernels.active_isa())
    recorder.add("row_limits", tuning.source())
    recorder.add("threads", threads or torch.get_num_threads(), "threads")


def _kernels(recorder: Recorder) -> None:
    from .. import kernels

    for operation, isas in kernels.registered().items():
        recorder.add("registered_kernels", " ".join(isas), operation=operation)
        recorder.add("chosen_kernel", _chosen(operation), operation=operation)


def _chosen(operation: str) -> str:
    """A few operations have no portable kernel: a forced instruction set may leave them none."""
    from .. import kernels

    try:
        return kernels.chosen(operation)
    except ValueError:
        return "none"


def _bandwidth(recorder: Recorder, threads: int | None, quiet: bool, file: Path | None, strict: bool) -> None:
    import torch

    from .. import bench
    from ..bench.idle import Idleness, load_now

    load = load_now()
    counts = sorted({1, threads or torch.get_num_threads()})
    with progress(quiet) as bar:
        for count in bar.track(counts, description="reading memory"):
            rate = bench.read_bandwidth(count)
            recorder.add("read_bandwidth", rate / 1e9, "GB/s", threads=count)
    idleness = Idleness(load, (rate, bench.read_bandwidth(counts[-1])))
    warn_if_busy(idleness, strict)
    record_idleness(recorder, idleness)
    _rates(recorder, counts[-1], idleness, file)


def _rates(recorder: Recorder, threads: int, idleness: "Idleness", file: Path | None) -> None:
    """What `roofsurface --machine here` takes the machine for; nothing where its cores are not known, or without the
    lab extra, which measures their frequency."""
    from ..hardware import MachineError, write_machine

    try:
        machine = with_readings(measured_machine(threads, idleness.readings[0]), idleness)
    except MissingExtraError as error:
        typer.echo(str(error), err=True)
        return
    except MachineError:
        if file:
            raise
        return
    if file:
        write_machine(file, machine.model_copy(update={"name": file.stem}))
    record_rates(recorder, machine)


def _print_all(records: "Sequence[Record]") -> None:
    """A table, and below it what is too long for one."""
    features = [one for one in records if one.metric == "cpu_features"]
    rows = [(metric_text(one), _text(one.value), one.unit) for one in records if one not in features]
    print()
    print_table("tilepress doctor", ["what", "value", "unit"], rows, words=3)
    for one in features:
        print("\n".join(wrapped(f"{metric_text(one)}: {one.value}", output_width())))


def _text(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
