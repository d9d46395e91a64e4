"""`tilepress doctor` on machines with matrix units that are made up: how many, and where threads run."""

import json
import os
from functools import partial

import pytest
import torch

from tilepress.bench import matrix_units, placement, tuning
from tilepress.bench.matrix_units import MatrixUnits
from tilepress.bench.tuning import TuningRun
from tilepress.cli.doctor_units import record_placement, record_units, unit_sentences
from tilepress.cli.output import Recorder
from tilepress.kernels import placement as stored_placement
from tilepress.kernels.placement import Placement
from tilepress.kernels.tuning import load, reset

OWN = sorted(os.sched_getaffinity(0))
EIGHT = MatrixUnits([(cpu, cpu + 8) for cpu in range(8)], 5.93e12)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Sets the units and the speedups that are measured; nothing is stored yet."""
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path))
    for name in ("TILEPRESS_TUNING", *stored_placement.CHOICES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tuning, "TuningRun", partial(TuningRun, size=64, batches=(1,), repeats=1, formats=("mxfp4",)))
    load.cache_clear()

    def has(units, many=1.0, few=1.0):
        monkeypatch.setattr(matrix_units, "measure_units", lambda: units)
        monkeypatch.setattr(placement, "measure_placement", lambda cpus, run: Placement(cpus, many, few))

    before = torch.get_num_threads()
    torch.set_num_threads(len(OWN))
    yield has
    torch.set_num_threads(before)
    reset()
    load.cache_clear()


def sentences(placement=None):
    recorder = Recorder()
    record_units(recorder)
    record_placement(recorder, placement)
    return list(unit_sentences(recorder.records))


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (EIGHT.groups, "matrix units: 8 (16 CPUs, two share one), 5.9 TOP/s each"),
        ([(0,), (1,), (2,)], "matrix units: 3 (3 CPUs, one each), 5.9 TOP/s each"),
        ([(0, 1), (2,), (3, 4)], "matrix units: 3 (5 CPUs, two share one in 2 cases), 5.9 TOP/s each"),
    ],
)
def test_units_in_words(machine, groups, text):
    machine(MatrixUnits(groups, 5.93e12))
    assert sentences() == [text]


def test_without_units_nothing_is_said(machine):
    machine(None)
    assert sentences() == []


def test_threads_that_cannot_be_pinned_leave_units_out(machine, monkeypatch, capsys):
    def refuse():
        raise ValueError("no thread of this process may run on CPU 3")

    monkeypatch.setattr(matrix_units, "measure_units", refuse)
    assert sentences() == []
    assert capsys.readouterr().err == "matrix units were not counted: no thread of this process may run on CPU 3\n"


def test_placements_in_words(machine):
    machine(EIGHT)
    assert sentences(Placement(range(8), 1.124, 1.0))[1] == (
        "one thread per matrix unit is 1.12 times as fast for many rows (prompts) and 1.00 for few: "
        "`tilepress generate` has one per unit"
    )
    assert sentences(Placement(range(8), 1.124, 0.7))[1] == (
        "one thread per matrix unit is 1.12 times as fast for many rows (prompts) and 0.70 for few: "
        "a thread runs on every CPU, unless started by `taskset -c 0-7`"
    )


def test_the_verdict_and_records_have_them(machine, call, call_for_records):
    machine(EIGHT)
    figure = call_for_records("doctor", "--threads", 1)
    assert figure("matrix_units", cpus=16) == 8 and figure("matrix_unit_rate", type="int8") == pytest.approx(5.93)
    assert figure("one_cpu_per_unit") == "0-7"
    verdict = [line.strip() for line in call("doctor", "--threads", 1, "--all").stdout.splitlines()]
    assert "matrix units: 8 (16 CPUs, two share one), 5.9 TOP/s each" in verdict


@pytest.mark.skipif(len(OWN) < 2, reason="two CPUs are needed to share a unit")
@pytest.mark.parametrize(("many", "few", "counts"), [(1.3, 1.0, {1, len(OWN)}), (1.3, 0.8, {len(OWN)})])
def test_tuning_stores_the_placement_and_the_limits_of_its_threads(machine, call_for_records, call, many, few, counts):
    machine(MatrixUnits([tuple(OWN)], 1e12), many, few)
    records = json.loads(call("doctor", "--tune", "--json").stdout)
    assert {one["labels"]["threads"] for one in records if one["metric"] == "row_limit"} == counts
    assert stored_placement.stored() == Placement([OWN[0]], many, few)
    figure = call_for_records("doctor", "--threads", 1)
    assert figure("placement_speedup", rows="many") == many and figure("placement_speedup", rows="few") == few
    assert figure("placement") == ("one thread per unit" if len(counts) == 2 else "all CPUs")
    assert sorted(os.sched_getaffinity(0)) == OWN
    call("doctor", "--reset-tuning")
    assert stored_placement.stored() is None


def test_tuning_looks_for_no_placement_where_there_is_no_choice(machine, call):
    machine(MatrixUnits([(cpu,) for cpu in OWN], 1e12), 9.0, 9.0)
    assert "placement" not in call("doctor", "--tune", "--json").stdout
    machine(MatrixUnits([tuple(OWN)], 1e12), 9.0, 9.0)
    assert "placement" not in call("doctor", "--tune", "--json", "--threads", 1).stdout
    torch.set_num_threads(len(OWN) + 1)
    assert "placement" not in call("doctor", "--tune", "--json").stdout
    assert stored_placement.stored() is None
