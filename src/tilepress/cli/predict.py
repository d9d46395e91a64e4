"""What the model says of a timing: counted operations of the kernel against limits measured in the same run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .machines import measured_machine
from .output import Recorder, print_table

if TYPE_CHECKING:
    from ..bench.linear import Result, Timing
    from ..hardware import Machine


@dataclass(frozen=True)
class Foretold:
    """Seconds that a call takes at least, and the domain that binds it."""

    seconds: float
    binding: str


def show_predictions(recorder: Recorder, results: "Sequence[Result]", threads: int | None, quiet: bool) -> None:
    """Record and print the prediction of every timing that there is one for, beside the timing."""
    rows = []
    machine = measured_machine(threads, results[0].bandwidth)
    pairs = [(result, timing) for result in results for timing in result.timings]
    for result, timing in pairs:
        found = foretell(machine, result, timing)
        if found is None:
            continue
        name, ratio = f"{timing.name}.{result.shape}.b{result.batch}", timing.seconds / found.seconds
        recorder.add(f"{name}.predicted_time", found.seconds * 1e6, "us", "model")
        recorder.add(f"{name}.predicted_bound", found.binding, "", "model")
        recorder.add(f"{name}.over.prediction", ratio, "x")
        times = (f"{1e6 * found.seconds:.1f}", f"{1e6 * timing.seconds:.1f}", f"{ratio:.2f}")
        rows.append([timing.name, timing.kernel, found.binding, str(result.batch), *times])
    if not quiet:
        columns = ["weights", "kernel", "bound by", "batch", "predicted, µs", "measured, µs", "× predicted"]
        print_table(f"{results[0].shape.title}: from counted operations", columns, rows, words=3)


def foretell(machine: "Machine", result: "Result", timing: "Timing") -> Foretold | None:
    """None of peers and of what was not counted: other formats, and more rows than the kernel was counted with."""
    from ..bench.linear import parse_contestant
    from ..hardware.machine import TILE_WEIGHTS
    from ..roofsurface import predict
    from ..roofsurface.kernels import Kernel

    if timing.is_peer:
        return None
    contestant = parse_contestant(timing.name)
    kernel = Kernel(timing.kernel, contestant.activations)
    if result.batch > kernel.rows:
        return None
    limited = machine.changed(memory={"bandwidth": result.bandwidth})
    try:
        found = predict(limited, contestant.format, contestant.density, kernel).surface
    except ValueError:
        return None
    return Foretold(result.shape.neurons * result.shape.inputs / TILE_WEIGHTS / found.rate, found.binding)
