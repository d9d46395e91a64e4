"""A machine by its name, a file, or the one at hand, measured now."""

from typing import TYPE_CHECKING, Annotated

import typer

from .output import progress

if TYPE_CHECKING:
    from ..hardware import Machine

MachineName = Annotated[
    str, typer.Option("--machine", help="spr-hbm, spr-ddr, a GPU of the paper, a YAML file, or here: this machine.")
]


def find_machine(name: str, threads: int | None = None, quiet: bool = False) -> "Machine":
    from ..hardware import read_machine

    if name != "here":
        return read_machine(name)
    with progress(quiet) as bar:
        bar.add_task("measuring this machine", total=None)
        return measured_machine(threads)


def measured_machine(threads: int | None = None, bandwidth: float | None = None) -> "Machine":
    """The machine at hand, its frequency measured now, and its bandwidth unless that is given."""
    import torch

    from .. import bench, kernels
    from ..hardware.here import machine_here, measure_frequency
    from ..records import machine

    count = threads or torch.get_num_threads()
    reads = bandwidth or bench.read_bandwidth(count)
    return machine_here(machine(), kernels.cpu_features(), reads, count, measure_frequency())
