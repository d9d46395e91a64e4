"""What the model says of a timing: counted operations of the kernel against limits measured in the same run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .machines import measured_machine
from .output import Recorder, print_table

if TYPE_CHECKING:
    from ..bench.linear import Result, Timing
    from ..formats import WeightFormat
    from ..hardware import Machine
    from ..roofsurface.kernels import Kernel


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
    from ..roofsurface.kernels import Kernel

    if timing.is_peer:
        return None
    contestant = parse_contestant(timing.name)
    kernel = Kernel(timing.kernel, contestant.activations)
    if result.batch > kernel.rows:
        return None
    limited = machine.changed(memory={"bandwidth": result.bandwidth})
    weights = result.shape.neurons * result.shape.inputs
    return _layer(limited, contestant.format, contestant.density, kernel, weights)


def foretell_decoding(machine: "Machine", model: Any) -> float:
    """Tokens a second that a model of transformers writes at most, one sequence at a time: what its packed layers take
    by counted operations, those that were not counted and all other weights by their bytes."""
    from ..bench.model import bytes_read
    from ..kernels import linear_kernel
    from ..models.registration import packed_layers
    from ..roofsurface.kernels import Kernel

    seconds, counted = 0.0, 0
    for _, layer in packed_layers(model):
        matrix = layer.matrix
        assert matrix is not None
        kernel = Kernel(linear_kernel(matrix, activations=layer.activations), layer.activations)
        density = matrix.density if matrix.sparse else 1.0
        found = _layer(machine, matrix.format, density, kernel, matrix.rows * matrix.cols)
        if found is not None:
            seconds += found.seconds
            counted += sum(array.nbytes for array in matrix.streams.values())
    return 1 / (seconds + (bytes_read(model) - counted) / machine.memory.bandwidth)


def _layer(
    machine: "Machine", format: "WeightFormat", density: float, kernel: "Kernel", weights: int
) -> Foretold | None:
    """None of what was not counted."""
    from ..hardware.machine import TILE_WEIGHTS
    from ..roofsurface import predict

    try:
        found = predict(machine, format, density, kernel).surface
    except ValueError:
        return None
    return Foretold(weights / TILE_WEIGHTS / found.rate, found.binding)
