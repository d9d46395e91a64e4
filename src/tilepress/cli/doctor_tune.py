"""`tilepress doctor --tune`: row limits and the placement of threads, measured on this machine."""

from typing import TYPE_CHECKING

from .doctor_units import record_placement, record_units, unit_sentences
from .output import Recorder, print_table, progress

if TYPE_CHECKING:
    from ..kernels.placement import Placement


def run_tuning(threads: int | None, json: bool) -> None:
    """Measure, store, and show what has changed; with `json`, all of it. No placement is looked for where the user has
    chosen `threads`."""
    from ..kernels.placement import threads_on

    recorder = Recorder()
    placement = None if threads else _tune_placement(recorder)
    for sentence in () if json else unit_sentences(recorder.records):
        print(sentence)
    if placement and placement.is_better:
        with threads_on(placement.cpus):
            _tune_limits(len(placement.cpus), recorder, json)
    _tune_limits(threads, recorder, json)
    if json:
        recorder.print_json()


def _tune_placement(recorder: Recorder) -> "Placement | None":
    """Stored, where CPUs share matrix units and torch's threads are one for each CPU."""
    import torch

    from ..bench.placement import PlacementRun, measure_placement
    from ..kernels import placement

    units = record_units(recorder)
    if units is None or len(units.groups) == len(units.cpus) or torch.get_num_threads() != len(units.cpus):
        return None
    measured = measure_placement(units.one_cpu_each, PlacementRun())
    placement.save(measured)
    record_placement(recorder, measured)
    return measured


def _tune_limits(threads: int | None, recorder: Recorder, json: bool) -> None:
    """The limits of one number of threads."""
    from .. import _native, kernels
    from ..bench.race import torch_threads
    from ..bench.tuning import TuningRun, measure_limits, steps
    from ..kernels import tuning

    run, isa = TuningRun(), kernels.active_isa()
    with torch_threads(threads) as count, progress(json) as bar:
        task = bar.add_task("timing variants", total=steps(run))
        limits = measure_limits(count, run, lambda text: bar.update(task, advance=1, description=text))
    path = tuning.save(limits, isa, count)
    for operation, weights, activations, rows in limits:
        labels = {"operation": operation, "weights": weights, "activations": activations}
        recorder.add("row_limit", rows, "rows", **labels, threads=count)
    if json:
        return
    built_in = {limit[:3]: limit[3] for limit in _native.row_limits(isa, True)}
    changes = [(*limit, built_in[limit[:3]]) for limit in limits if limit[3] != built_in[limit[:3]]]
    lines = [tuple(map(str, change)) for change in changes]
    print_table(f"row limits in {path}", ["operation", "weights", "activations", "rows", "built-in"], lines, words=3)
    print(f"{len(limits)} limits measured, {len(changes)} differ from the built-in ones")


def forget_tuning() -> None:
    """Remove what is stored."""
    from ..kernels import tuning

    tuning.reset()
