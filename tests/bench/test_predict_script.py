"""`benchmarks/predict.py`, on records that are given."""

import pytest
from tests.scripts import ROOT, load_script

from tilepress.bench.linear import parse_contestant
from tilepress.formats import parse_weight
from tilepress.records import Record
from tilepress.roofsurface.kernels import kernel_on


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return load_script("benchmarks/predict.py")


def record(metric, value, format="bf8", density=1.0, activations="float", batch=1):
    labels = {"format": format, "density": density, "activations": activations, "shape": "64x64", "batch": batch}
    return Record(metric, labels, value, "", "measured", "a machine", "a command")


def test_cells_and_their_summary(script):
    records = [
        *(record("time", 114.0), record("predicted_time", 100.0), record("predicted_bound", "memory")),
        *(record("time", 80.0, density=0.5), record("predicted_time", 100.0, density=0.5)),
        record("time", 50.0, "int8:row", 1.0, "int8", 16),
        record("busy", "its load is above its 2 CPUs"),
        record("busy", "no", batch=16),
    ]
    near, far, missing = cells = script.cells(records)
    assert [cell.is_near for cell in cells] == [True, False, False]
    assert "1.14" in str(near) and str(far).endswith("*") and str(missing).endswith("not counted")
    assert [cell.kernel for cell in cells] == ["bf8", "bf8@50%", "int8:row+int8"]
    one, sixteen = script.summary(cells)
    assert one == "1 rows: 1 of 2 cells within 15 %; 1 of 2 kernels at every shape"
    assert sixteen == "16 rows: 0 of 1 cells within 15 %; 0 of 1 kernels at every shape"
    assert len(script.busy(records)) == 1


def test_a_kernel_must_be_near_at_every_shape(script):
    near, far = (script.Cell("bf8", shape, 1, time, 100.0, "") for shape, time in (("1x1", 99.0), ("2x2", 120.0)))
    assert script.summary([near, far]) == ["1 rows: 1 of 2 cells within 15 %; 0 of 1 kernels at every shape"]


def test_all_its_kernels_are_counted_on_amx(script):
    assert len(script.KERNELS) == 10
    for text in script.KERNELS:
        one = parse_contestant(text)
        activations = "bf16" if one.activations == "float" else one.activations
        for rows in script.BATCHES:
            assert kernel_on("amx", parse_weight(str(one.format)), one.density, activations, rows)


def test_its_command(script):
    words = script.command(["64x64"], strict=True)
    assert words[:2] == ["bench", "linear"] and {"--predict", "--strict", "--batch=16", "--shape=64x64"} <= set(words)
    assert "--strict" not in script.command(["64x64"], strict=False)
