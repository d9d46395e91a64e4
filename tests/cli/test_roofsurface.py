import pytest

from tilepress.formats import parse_weight
from tilepress.roofsurface.kernels import Kernel


def test_the_papers_machine(call, call_for_records, tmp_path):
    page = tmp_path / "s.html"
    found = call_for_records("roofsurface", "--weights", "mxfp4", "--weights", "bf8", "--batch", 16, "--plot", page)
    assert found["spr-hbm.mxfp4@100%.bound_by"] == "vector" and found["spr-hbm.bf8@100%.bound_by"] == "memory"
    assert found["spr-hbm.mxfp4@100%.rate"] == pytest.approx(11.76, abs=0.01)
    assert page.exists()
    done = call("roofsurface", "--decompressor", "deca", "--search", "--bandwidth", 1, "--bandwidth", 0.25)
    assert done.returncode == 0 and "deca:w32:l8" in done.stdout and "× bandwidth" in done.stdout


def test_a_machine_of_which_no_vector_unit_is_known(call_for_records):
    assert call_for_records("roofsurface", "--machine", "h100-80gb-pcie")["h100-80gb-pcie.bf8@5%.bound_by"] == "memory"


def test_this_machine(call_for_records):
    arguments = ["--machine", "here", "--weights", "bf8", "--density", 0.2]
    found = call_for_records("roofsurface", *arguments, "--decompressor", "deca")
    assert found["here.bf8@20%.bound_by"] in ("memory", "vector", "matrix")


def test_our_kernels_on_this_machine(call):
    done = call("roofsurface", "--machine", "here", "--json")
    counted = "was not counted" not in done.stderr
    assert (done.returncode == 0) == counted and ("here.int8:row@100%.bound_by" in done.stdout) == counted
    assert "rows of activations, not 99" in call("roofsurface", "--machine", "here", "--batch", 99).stderr


def test_our_kernels_on_a_machine_that_is_not_at_hand(call, call_for_records):
    """Those of its instruction set, wherever this runs."""
    arguments = ["--machine", "spr-ddr", "--decompressor", "kernels", "--weights", "int4:g32"]
    for batch, kernel in ((1, "linear_f32_i8_int/avx512_vbmi2"), (16, "linear_f32_i8_int_tiles/amx")):
        found = call_for_records("roofsurface", *arguments, "--batch", batch)
        format = parse_weight("int4:g32")
        assert found["spr-ddr.int4:g32@100%.vector.demand"] == Kernel(kernel, "int8").counted(format, 1).operations
    assert "has no vector units" in call("roofsurface", *arguments, "--machine", "h100-80gb-pcie").stderr


def test_what_another_decompressor_would_buy(call, call_for_records):
    arguments = ["--weights", "bf8", "--density", 0.05, "--instead", "deca"]
    assert call_for_records("roofsurface", *arguments)["spr-hbm.bf8@5%.instead"] == pytest.approx(142 / 32, rel=1e-3)
    assert "× with deca" in call("roofsurface", *arguments).stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--machine", "spr"], "no machine 'spr'"),
        (["--weights", "mxfp5"], "unknown format 'mxfp5'"),
        (["--density", "2"], "a density is above 0"),
        (["--decompressor", "dec"], "no decompressor"),
        (["--search", "--cores", "0"], "numbers above 0"),
        (["--weights", "int2:g32", "--density", "0.5"], "nobody has counted"),
        (["--decompressor", "none", "--plot", "x.html"], "a surface has memory, vector and matrix"),
        (["--weights", "mxfp4", "--activations", "bf17"], "add --decompressor kernels"),
    ],
)
def test_errors(call, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("roofsurface", *arguments)
    assert done.returncode == 1 and message in done.stderr and not done.stdout
    assert not list(tmp_path.iterdir())
