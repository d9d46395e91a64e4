"""What the model says of a timing: counted operations of the kernel against limits measured in the same run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .busy import Watch
from .machines import measured_machine
from .output import Recorder, print_table, progress

if TYPE_CHECKING:
    from ..bench.linear import Contestant, Result, Settings, Timing
    from ..formats import WeightFormat
    from ..hardware import Machine
    from ..records import Label
    from ..roofsurface.kernels import Kernel


NOT_COUNTED = "not counted"


@dataclass(frozen=True)
class Prediction:
    """Seconds that a call takes at least, by the domain that binds it, and those that are to be expected."""

    least: float
    binding: str
    expected: float


def show_predictions(
    recorder: Recorder, results: "Sequence[Result]", settings: "Settings", watch: Watch, quiet: bool
) -> None:
    """Record and print the prediction of every timing that there is one for, beside the timing."""
    from ..bench.linear import call_times, parse_contestant
    from ..roofsurface.kernels import Kernel, floats_as

    ours = [parse_contestant(timing.name) for timing in results[0].timings if not timing.is_peer]
    with progress(quiet) as bar:
        bar.add_task("measuring calls without weights", total=None)
        machine = measured_machine(settings.threads, results[0].bandwidth)
        calls = call_times(results[0].shape, ours, settings)
    rows = []
    for result in results:
        where: dict[str, Label] = {"shape": str(result.shape), "batch": result.batch}
        watch.check(recorder, result.readings, **where)
        mine = [timing for timing in result.timings if not timing.is_peer]
        for contestant, timing in zip(ours, mine, strict=True):
            kernel, call = (
                Kernel(timing.kernel, floats_as(contestant.activations, settings.dtype)),
                calls[contestant, result.batch],
            )
            prediction = predict_call(machine, result, contestant, kernel, call)
            recorder.add("call_time", call * 1e6, "us", **timing.labels, **where)
            if prediction:
                _record(recorder, prediction, timing.seconds, {**timing.labels, **where})
            rows.append(_row(timing, result.batch, prediction))
    if not quiet:
        _print(results[0].shape.title, rows)


def _record(recorder: Recorder, prediction: Prediction, seconds: float, labels: "Mapping[str, Label]") -> None:
    recorder.add("least_time", prediction.least * 1e6, "us", "model", **labels)
    recorder.add("predicted_time", prediction.expected * 1e6, "us", "model", **labels)
    recorder.add("predicted_bound", prediction.binding, "", "model", **labels)
    recorder.add("time_over_prediction", seconds / prediction.expected, "x", **labels)


def _row(timing: "Timing", batch: int, prediction: Prediction | None) -> list[str]:
    measured = f"{1e6 * timing.seconds:.1f}"
    if prediction is None:
        return [timing.name, timing.kernel, NOT_COUNTED, str(batch), "", "", measured, ""]
    times = (f"{1e6 * one:.1f}" for one in (prediction.least, prediction.expected))
    ratio = f"{timing.seconds / prediction.expected:.2f}"
    return [timing.name, timing.kernel, prediction.binding, str(batch), *times, measured, ratio]


def _print(title: str, rows: Sequence[Sequence[str]]) -> None:
    if all(row[2] == NOT_COUNTED for row in rows):
        print("no prediction: the operations of none of these kernels were counted for these weights and rows\n")
        return
    figures = ["at least, µs", "predicted, µs", "measured, µs", "× predicted"]
    columns = ["weights", "kernel", "bound by", "batch", *figures]
    print_table(f"{title}: from counted operations", columns, rows, words=3)


def predict_call(
    machine: "Machine", result: "Result", contestant: "Contestant", kernel: "Kernel", call: float
) -> Prediction | None:
    """None of what was not counted: other formats, and more rows than the kernel was counted with. `call`: seconds of a
    call with a block of weights for each of the machine's cores."""
    from ..tiles.layout import BLOCK_NEURONS

    if result.batch > kernel.rows:
        return None
    limited = machine.changed(memory={"bandwidth": result.bandwidth})
    layer = _layer(limited, contestant.format, contestant.density, kernel, result.shape.neurons * result.shape.inputs)
    if layer is None:
        return None
    left = max(1 - BLOCK_NEURONS * machine.cores / result.shape.neurons, 0)  # the call has its blocks
    return replace(layer, expected=call + left * layer.expected)


def predict_decoding(machine: "Machine", model: Any) -> float:
    """Tokens a second that a model of transformers writes at most, one sequence at a time: what its packed layers take
    by counted operations, those that were not counted and all other weights by their bytes."""
    from ..bench.model import bytes_read
    from ..kernels import linear_kernel
    from ..models.registration import packed_layers
    from ..roofsurface.kernels import Kernel, floats_as

    seconds, counted = 0.0, 0
    for _, layer in packed_layers(model):
        matrix = layer.matrix
        assert matrix is not None
        name = linear_kernel(matrix, dtype=model.dtype, activations=layer.activations)
        kernel = Kernel(name, floats_as(layer.activations, model.dtype))
        density = matrix.density if matrix.sparse else 1.0
        prediction = _layer(machine, matrix.format, density, kernel, matrix.rows * matrix.cols)
        if prediction is not None:
            seconds += prediction.least
            counted += sum(array.nbytes for array in matrix.streams.values())
    return 1 / (seconds + (bytes_read(model) - counted) / machine.memory.bandwidth)


def _layer(
    machine: "Machine", format: "WeightFormat", density: float, kernel: "Kernel", weights: int
) -> Prediction | None:
    """None of what was not counted."""
    from ..hardware.machine import TILE_WEIGHTS
    from ..roofsurface import expected_time, predict

    try:
        bound = predict(machine, format, density, kernel).surface
    except ValueError:
        return None
    tiles = weights / TILE_WEIGHTS
    return Prediction(tiles / bound.rate, bound.binding, tiles * expected_time(bound, machine.overlap))
