"""`tilepress doctor`: what this machine has, what would run on it, and how fast it reads memory."""

from pathlib import Path
from typing import Annotated

import typer

from .._extras import MissingExtraError, need_lab
from .machines import measured_machine
from .output import Json, Recorder, Threads, print_table, progress


def doctor(
    machine: Annotated[
        Path | None, typer.Option(help="Also write this machine to a YAML file, for --machine elsewhere.")
    ] = None,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Show the processor, the kernels chosen for it, and the read bandwidth measured now.

    TILEPRESS_ISA in the environment forces an instruction set.

    Example: tilepress doctor --machine this.yaml
    """
    if machine and machine.suffix not in (".yaml", ".yml"):
        raise ValueError(f"a machine is written to a file that ends in .yaml, not to {machine}")
    if machine:
        need_lab("`tilepress doctor --machine`")
    recorder = Recorder()
    _processor(recorder, threads)
    _kernels(recorder)
    _bandwidth(recorder, threads, json, machine)
    if json:
        recorder.print_json()
    else:
        rows = [(record.name, _text(record.value), record.unit) for record in recorder.records]
        print_table("tilepress doctor", ["what", "value", "unit"], rows, words=3)


def _processor(recorder: Recorder, threads: int | None) -> None:
    import torch

    from .. import __version__, bench, kernels
    from ..records import cpu_model

    recorder.add("version.tilepress", __version__)
    recorder.add("version.torch", str(torch.__version__))
    recorder.add("cpu.model", cpu_model())
    recorder.add("cpu.features", " ".join(kernels.cpu_features()))
    recorder.add("cpu.last_level_cache", bench.last_level_cache_bytes() / 2**20, "MiB")
    recorder.add("isa.supported", " ".join(kernels.supported_isas()))
    recorder.add("isa.active", kernels.active_isa())
    recorder.add("threads", threads or torch.get_num_threads(), "threads")


def _kernels(recorder: Recorder) -> None:
    from .. import kernels

    for operation, isas in kernels.registered().items():
        recorder.add(f"kernel.{operation}.registered", " ".join(isas))
        recorder.add(f"kernel.{operation}.chosen", _chosen(operation))


def _chosen(operation: str) -> str:
    """A few operations have no portable kernel: a forced instruction set may leave them none."""
    from .. import kernels

    try:
        return kernels.chosen(operation)
    except ValueError:
        return "none"


def _bandwidth(recorder: Recorder, threads: int | None, quiet: bool, file: Path | None) -> None:
    import torch

    from .. import bench

    counts = sorted({1, threads or torch.get_num_threads()})
    with progress(quiet) as bar:
        for count in bar.track(counts, description="reading memory"):
            rate = bench.read_bandwidth(count)
            recorder.add(f"read_bandwidth.threads_{count}", rate / 1e9, "GB/s")
    _rates(recorder, counts[-1], rate, file)


def _rates(recorder: Recorder, threads: int, bandwidth: float, file: Path | None) -> None:
    """What `roofsurface --machine here` takes the machine for; nothing where its cores are not known, or without the
    lab extra, which measures their frequency."""
    from ..hardware import MachineError, write_machine

    try:
        found = measured_machine(threads, bandwidth)
    except MissingExtraError as error:
        typer.echo(str(error), err=True)
        return
    except MachineError:
        if file:
            raise
        return
    if file:
        write_machine(file, found.model_copy(update={"name": file.stem}))
    recorder.add("cpu.cores", found.cores, "cores")
    recorder.add("cpu.frequency", found.frequency / 1e9, "GHz")
    recorder.add("vector_rate", found.vector_rate / 1e9, "Goperation/s", "model")
    recorder.add("matrix_rate", found.matrix_rate / 1e9, "Goperation/s", "model")
    recorder.add("matrix_rows", found.matrix.rows if found.matrix else 1, "rows", "model")


def _text(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
