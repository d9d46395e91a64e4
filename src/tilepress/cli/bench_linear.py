"""What `tilepress bench linear` measures, records and prints."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .busy import Watch
from .output import Recorder, print_table, progress
from .predict import show_predictions

if TYPE_CHECKING:
    from ..bench.linear import Contestant, Result, Settings
    from ..bench.shapes import Shape
    from ..records import Label


def _measured(
    shapes: "Sequence[Shape]", contestants: "Sequence[Contestant]", settings: "Settings", quiet: bool
) -> "list[list[Result]]":
    """For each shape the results of all batches, with a progress bar until they are there: it would take over what is
    printed meanwhile."""
    from ..bench.linear import measure, steps

    with progress(quiet) as bar:
        task = bar.add_task("", total=len(shapes) * steps(contestants, settings))

        def step(text: str) -> None:
            bar.update(task, advance=1, description=text)

        return [list(measure(shape, contestants, settings, step)) for shape in shapes]


def compare(
    shapes: "Sequence[Shape]",
    contestants: "Sequence[Contestant]",
    settings: "Settings",
    watch: Watch | None,
    json: bool,
) -> None:
    """With predictions if there is a `watch`."""
    recorder, refused = Recorder(), dict[str, str]()
    for results in _measured(shapes, contestants, settings, json):
        _record(recorder, results)
        refused |= results[0].refused
        if not json:
            _print_results(results)
        if watch:
            show_predictions(recorder, results, settings, watch, json)
    for name, reason in refused.items():
        recorder.add("peer_refused", reason, peer=name)
        if not json:
            print(f"no peer here: {name}: {reason}")
    if json:
        recorder.print_json()


def _record(recorder: Recorder, results: "Sequence[Result]") -> None:
    shape = results[0].shape
    if shape.layers:
        recorder.add("layers", ", ".join(shape.layers), shape=str(shape))
    for result in results:
        where: dict[str, Label] = {"shape": str(shape), "batch": result.batch}
        recorder.add("read_bandwidth", result.bandwidth / 1e9, "GB/s", **where)
        for timing in result.timings:
            labels = {**timing.labels, **where}
            recorder.add("time", timing.seconds * 1e6, "us", **labels)
            recorder.add("rate", timing.bytes_per_second / 1e9, "GB/s", **labels)
            recorder.add("share_of_read_bandwidth", timing.share_of_bandwidth, **labels)
            recorder.add("kernel", timing.kernel, **labels)
            if timing.over_read is not None:
                recorder.add("speedup", timing.over_read, "x", **labels, peer="plain read")
            for peer, ratio in result.over(timing).items() if not timing.is_peer else ():
                recorder.add("speedup", ratio, "x", **labels, peer=peer)


def _print_results(results: "Sequence[Result]") -> None:
    rows = [_row(result, index) for result in results for index in range(len(result.timings))]
    peers = [f"× {timing.name}" for timing in results[0].timings if timing.is_peer]
    columns = ["weights", "kernel", "batch", "µs", "GB/s", "% of read", "× plain read", *peers]
    print_table(results[0].shape.title, columns, rows, words=2)
    read = ", ".join(f"{result.bandwidth / 1e9:.1f} at batch {result.batch}" for result in results)
    print(f"read bandwidth, GB/s: {read}\n")


def _row(result: "Result", index: int) -> list[str]:
    timing = result.timings[index]
    figures = (timing.seconds * 1e6, timing.bytes_per_second / 1e9, timing.share_of_bandwidth * 100)
    over = [timing.over_read, *result.over(timing).values()]
    ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in over]
    return [timing.name, timing.kernel, str(result.batch), *(f"{figure:.1f}" for figure in figures), *ratios]


def sweep_densities(
    shapes: "Sequence[Shape]",
    contestants: "Sequence[Contestant]",
    settings: "Settings",
    watch: Watch | None,
    json: bool,
) -> None:
    """With predictions if there is a `watch`."""
    from ..bench.linear import sweep

    recorder = Recorder()
    swept = {contestant: sweep(contestant) for contestant in contestants}
    everyone = [one for densities in swept.values() for one in densities]
    for results in _measured(shapes, everyone, settings, json):
        _record(recorder, results)
        for result in results:
            for contestant, densities in swept.items():
                _sweep_result(recorder, result, contestant, densities, json)
        if watch:
            show_predictions(recorder, results, settings, watch, json)
    if json:
        recorder.print_json()


def _sweep_result(
    recorder: Recorder, result: "Result", contestant: "Contestant", densities: "Sequence[Contestant]", json: bool
) -> None:
    """A contestant's times at every density against its dense one, and where sparse starts to pay."""
    from ..bench.linear import pays_from

    timings = {timing.name: timing for timing in result.timings}
    seconds = {one.density: timings[str(one)].seconds for one in densities}
    where: dict[str, Label] = {"shape": str(result.shape), "batch": result.batch}
    for one in densities:
        recorder.add("speedup", seconds[1.0] / seconds[one.density], "x", **one.labels, **where, peer="dense")
    pays = pays_from(seconds)
    kind = {"format": str(contestant.format), "activations": contestant.activations}
    recorder.add("sparse_wins_from_density", "never" if pays is None else pays, **kind, **where)
    if not json:
        _print_sweep(result, contestant, densities, pays)


def _print_sweep(
    result: "Result", contestant: "Contestant", densities: "Sequence[Contestant]", pays: float | None
) -> None:
    from ..bench.linear import Timing

    timings = {timing.name: timing for timing in result.timings}
    dense = timings[str(densities[0])].seconds

    def row(density: float, timing: Timing) -> list[str]:
        share = f"{timing.share_of_bandwidth * 100:.1f}"
        rate, ratio = f"{timing.bytes_per_second / 1e9:.1f}", f"{dense / timing.seconds:.2f}"
        return [f"{100 * density:g} %", timing.kernel, f"{timing.seconds * 1e6:.1f}", rate, share, ratio]

    rows = [row(one.density, timings[str(one)]) for one in densities]
    title = f"{contestant}, {result.shape.title}, batch {result.batch}"
    print_table(title, ["density", "kernel", "µs", "GB/s", "% of read", "× dense"], rows, words=2)
    wins = "never" if pays is None else f"from {100 * pays:g} % down"
    print(f"sparse beats dense: {wins} (of the densities measured)\n")
