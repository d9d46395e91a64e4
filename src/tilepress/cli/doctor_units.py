"""What `tilepress doctor` says of matrix units: their number, their rate, and whether each should have one thread."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from .output import Recorder

if TYPE_CHECKING:
    from ..bench.matrix_units import MatrixUnits
    from ..kernels.placement import Placement
    from ..records import Record, Value


def record_units(recorder: Recorder) -> "MatrixUnits | None":
    """Measured now; nothing where there are none, or where they cannot be counted."""
    from ..bench.matrix_units import cpu_list, measure_units

    try:
        units = measure_units()
    except ValueError as error:
        typer.echo(f"matrix units were not counted: {error}", err=True)
        return None
    if units is not None:
        recorder.add("matrix_units", len(units.groups), "units", cpus=len(units.cpus))
        recorder.add("matrix_unit_rate", units.rate / 1e12, "TOP/s", type="int8")
        recorder.add("one_cpu_per_unit", cpu_list(units.one_cpu_each))
    return units


def record_placement(recorder: Recorder, placement: "Placement | None" = None) -> None:
    """The one given, else what `doctor --tune` has stored."""
    from ..bench.matrix_units import cpu_list
    from ..kernels.placement import stored

    placement = placement or stored()
    if placement is not None:
        cpus = cpu_list(placement.cpus)
        recorder.add("placement_speedup", placement.many_rows, rows="many", cpus=cpus)
        recorder.add("placement_speedup", placement.few_rows, rows="few", cpus=cpus)
        recorder.add("placement", "one thread per unit" if placement.is_better else "all CPUs", cpus=cpus)


def unit_sentences(records: "Sequence[Record]") -> Iterator[str]:
    """For people, of the records above; nothing where there are none."""
    if (count := _find(records, "matrix_units")) and (rate := _find(records, "matrix_unit_rate")):
        shared = _sharing(count.value, count.labels["cpus"])
        yield f"matrix units: {count.value} ({count.labels['cpus']} CPUs, {shared}), {rate.value:.1f} TOP/s each"
    yield from _placement_sentences(records)


def _sharing(units: "Value", cpus: object) -> str:
    assert isinstance(units, int) and isinstance(cpus, int)
    if cpus == units:
        return "one each"
    return "two share one" if cpus == 2 * units else f"two share one in {cpus - units} cases"


def _placement_sentences(records: "Sequence[Record]") -> Iterator[str]:
    speedups = {one.labels["rows"]: one for one in records if one.metric == "placement_speedup"}
    chosen = _find(records, "placement")
    if not speedups or chosen is None:
        return
    many, few = speedups["many"].value, speedups["few"].value
    text = f"one thread per matrix unit is {many:.2f} times as fast for many rows (prompts) and {few:.2f} for few"
    if chosen.value != "all CPUs":
        yield f"{text}: `tilepress generate` has one per unit"
    else:
        yield f"{text}: a thread runs on every CPU, unless started by `taskset -c {chosen.labels['cpus']}`"


def _find(records: "Sequence[Record]", metric: str) -> "Record | None":
    return next((one for one in records if one.metric == metric), None)
