"""`tilepress doctor --tune`: row limits measured on this machine, beside the built-in ones."""

from .output import Recorder, print_table, progress


def run_tuning(threads: int | None, json: bool) -> None:
    """Measure, store, and show what has changed; with `json`, all limits."""
    from .. import _native, kernels
    from ..bench.race import torch_threads
    from ..bench.tuning import TuningRun, measure_limits, steps
    from ..kernels import tuning

    run, isa = TuningRun(), kernels.active_isa()
    with torch_threads(threads) as count, progress(json) as bar:
        task = bar.add_task("timing variants", total=steps(run))
        limits = measure_limits(count, run, lambda text: bar.update(task, advance=1, description=text))
    path = tuning.save(limits, isa, count)
    built_in = {limit[:3]: limit[3] for limit in _native.row_limits(isa, True)}
    recorder = Recorder()
    for operation, weights, activations, rows in limits:
        recorder.add("row_limit", rows, "rows", operation=operation, weights=weights, activations=activations)
    if json:
        return recorder.print_json()
    changes = [(*limit, built_in[limit[:3]]) for limit in limits if limit[3] != built_in[limit[:3]]]
    lines = [tuple(map(str, change)) for change in changes]
    print_table(f"row limits in {path}", ["operation", "weights", "activations", "rows", "built-in"], lines, words=3)
    print(f"{len(limits)} limits measured, {len(changes)} differ from the built-in ones")


def forget_tuning() -> None:
    """Remove the stored limits."""
    from ..kernels import tuning

    tuning.reset()
