"""A machine by its name, a file, or the one at hand, measured now."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from .busy import warn_if_busy
from .completion import machines
from .output import Recorder, progress

if TYPE_CHECKING:
    from ..bench.idle import Idleness
    from ..hardware import Machine

MachineName = Annotated[
    str,
    typer.Option(
        "--machine",
        autocompletion=machines,
        help="A name of `roofsurface --list`, spr-hbm say, a YAML file, or here: this machine.",
    ),
]


@dataclass(frozen=True)
class Measured:
    """A machine, and if it is the one at hand how idle it was."""

    machine: "Machine"
    idleness: "Idleness | None" = None


def find_machine(name: str, threads: int | None = None, quiet: bool = False) -> "Machine":
    return find_measured(name, threads, quiet).machine


def find_measured(name: str, threads: int | None = None, quiet: bool = False, strict: bool = False) -> Measured:
    """The one at hand with a warning if it is busy, and an error if `strict`."""
    from ..hardware import read_machine

    if name != "here":
        return Measured(read_machine(name))
    with progress(quiet) as bar:
        bar.add_task("measuring this machine", total=None)
        here = _measure_here(threads)
    assert here.idleness
    warn_if_busy(here.idleness, strict)
    return here


def _measure_here(threads: int | None) -> Measured:
    import torch

    from .. import bench
    from ..bench.idle import Idleness, load_now

    load, count = load_now(), threads or torch.get_num_threads()
    first = bench.read_bandwidth(count)
    machine = measured_machine(count, first)
    idleness = Idleness(load, (first, bench.read_bandwidth(count)))
    return Measured(with_readings(machine, idleness), idleness)


def with_readings(machine: "Machine", idleness: "Idleness") -> "Machine":
    """With the larger of the bandwidths, as others can only take from it; the source has both."""
    source = f"{machine.sources['memory']}; {idleness.text}"
    best = machine.changed(memory={"bandwidth": max(idleness.readings)})
    return best.model_copy(update={"sources": {**machine.sources, "memory": source}})


def measured_machine(threads: int | None, bandwidth: float) -> "Machine":
    """The machine at hand with this bandwidth, its frequency and whether threads share cores measured now."""
    import torch

    from .. import kernels
    from ..hardware.here import cores_are_shared, machine_here, measure_frequency
    from ..records import machine

    count = threads or torch.get_num_threads()
    measured = (bandwidth, count, measure_frequency(), cores_are_shared(count))
    return machine_here(machine(), kernels.cpu_features(), *measured)


def record_rates(recorder: Recorder, machine: "Machine") -> None:
    """What a report's explorer takes a measured machine for, beside its bandwidth."""
    recorder.add("cpu_cores", machine.cores, "cores")
    recorder.add("cpu_frequency", machine.frequency / 1e9, "GHz")
    recorder.add("vector_rate", machine.vector_rate / 1e9, "Goperation/s", "model")
    recorder.add("matrix_rate", machine.matrix_rate / 1e9, "Goperation/s", "model")
    recorder.add("matrix_rows", machine.matrix.rows if machine.matrix else 1, "rows", "model")
