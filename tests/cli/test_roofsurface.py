import pytest

from tilepress.formats import parse_weight
from tilepress.hardware import machine_names
from tilepress.roofsurface.kernels import Kernel
from tilepress.simulate.layers import find_transformer


def test_the_papers_machine(call, call_for_records, tmp_path):
    page = tmp_path / "s.html"
    figure = call_for_records("roofsurface", "--weights", "mxfp4", "--weights", "bf8", "--batch", 16, "--html", page)
    assert figure("bound_by", format="mxfp4") == "vector" and figure("bound_by", format="bf8") == "memory"
    assert figure("rate", target="spr-hbm", format="mxfp4", density=1) == pytest.approx(11.76, abs=0.01)
    text = page.read_text()
    assert 'data-kind="bord"' in text and "mxfp4@100%" in text and len(text) < 200_000
    done = call("roofsurface", "--decompressor", "deca", "--search", "--bandwidth", 1, "--bandwidth", 0.25)
    assert done.returncode == 0 and "deca:w32:l7" in done.stdout and "× bandwidth" in done.stdout


def test_a_machine_of_which_no_vector_unit_is_known(call_for_records):
    figure = call_for_records("roofsurface", "--machine", "h100-80gb-pcie")
    assert figure("bound_by", target="h100-80gb-pcie", format="bf8", density=0.05) == "memory"


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_by_its_usual_decompressor(name, call_for_records):
    figure = call_for_records("roofsurface", "--machine", name, "--density", 1)
    assert {one.labels["target"] for one in figure.records} == {name} and all(figure.all("rate"))


def test_what_usually_decompresses(call):
    for name, usual in (("spr-ddr", "libxsmm"), ("zen5", "kernels"), ("grace", "kernels"), ("srf", "none")):
        assert f", {usual}, 1 row" in call("roofsurface", "--machine", name).stdout
    assert ", none, 1 row" in call("roofsurface", "--machine", "h100-sxm").stdout


def test_a_gpus_own_dequantisation(call_for_records):
    """Operations as wide as its vectors: 78.5 of them in the time that memory takes for a tile."""
    for operations, binding in ((78, "memory"), (79, "vector")):
        arguments = ["--machine", "h100-sxm", "--weights", "mxfp4", "--decompressor", f"ops:{operations}"]
        assert call_for_records("roofsurface", *arguments)("bound_by") == binding


def test_machines_are_listed(call, call_for_records):
    printed = call("roofsurface", "--list").stdout
    assert all(f"\n{name} " in printed for name in machine_names()) and "1.5 × 256 bits" in printed
    figure = call_for_records("roofsurface", "--list")
    assert figure("bandwidth", target="spr-hbm") == 850 and figure("vector_rate", target="spr-hbm", bits=512) == 280
    assert figure("matrix_rate", target="zen5", rows=1) == pytest.approx(86.4)
    assert not figure.has("vector_rate", target="a100-80gb-pcie")


def test_this_machine(call_for_records):
    arguments = ["--machine", "here", "--weights", "bf8", "--density", 0.2]
    figure = call_for_records("roofsurface", *arguments, "--decompressor", "deca")
    assert figure("bound_by", target="here", format="bf8", density=0.2) in ("memory", "vector", "matrix")


def test_our_kernels_on_this_machine(call):
    done = call("roofsurface", "--machine", "here", "--json")
    counted = "was not counted" not in done.stderr
    assert (done.returncode == 0) == counted and ('"bound_by", "labels": {"target": "here"' in done.stdout) == counted
    assert "rows of activations, not 99" in call("roofsurface", "--machine", "here", "--batch", 99).stderr


def test_our_kernels_on_a_machine_that_is_not_at_hand(call, call_for_records):
    """Those of its instruction set, wherever this runs."""
    arguments = ["--machine", "spr-ddr", "--decompressor", "kernels", "--weights", "int4:g32"]
    for batch, kernel in ((1, "linear_f32_i8_int/avx512_vbmi2"), (16, "linear_f32_i8_int_tiles/amx")):
        figure = call_for_records("roofsurface", *arguments, "--batch", batch)
        format = parse_weight("int4:g32")
        assert figure("demand", domain="vector") == Kernel(kernel, "int8").counted(format, 1).operations
    assert "has no vector units" in call("roofsurface", *arguments, "--machine", "h100-80gb-pcie").stderr


def test_what_another_decompressor_would_buy(call, call_for_records):
    arguments = ["--weights", "bf8", "--density", 0.05, "--instead", "deca"]
    assert call_for_records("roofsurface", *arguments)("speedup_instead") == pytest.approx(142 / 32, rel=1e-3)
    assert "× with deca" in call("roofsurface", *arguments).stdout


RANKED = ["--machine", "spr-ddr", "--weights", "bf8", "--model", "llama3.1-8b"]


def test_a_decoder_on_two_sockets(call, call_for_records):
    figure = call_for_records("roofsurface", *RANKED, "--ranks", 2, "--batch", 16)
    one, together, ranked = (figure("decode", sockets=s, ranks=r, batch=16) for s, r in ((1, 1), (2, 1), (2, 2)))
    weights = find_transformer("llama3.1-8b").weights
    assert one == pytest.approx(16 * 260e9 / weights) and together == pytest.approx(16 * 2 * 214.8e9 / weights)
    exchange = 66 * 216e-9 + 16 * 4 * (65 * 4096 + 128256 / 2) / 107.4e9
    assert ranked == pytest.approx(16 / (weights / 2 / 260e9 + exchange))
    assert figure("exchange_share", ranks=2) == pytest.approx(exchange * ranked / 16)
    assert figure("exchange_share", sockets=2, ranks=1) == 0
    assert {record.origin for record in figure.records} == {"model"}
    printed = call("roofsurface", *RANKED, "--ranks", 2, "--batch", 16).stdout
    assert "modelled, not measured" in printed and "2 ranks on 2 sockets" in printed and f"{ranked:.1f}" in printed


def test_one_rank_is_what_there_was(call, call_for_records):
    plain, one = (call("roofsurface", "--machine", "spr-ddr", *rest).stdout for rest in ((), ("--ranks", 1)))
    assert plain == one
    figure = call_for_records("roofsurface", *RANKED)
    assert figure.all("decode") == [pytest.approx(figure("rate") * 1e12 / find_transformer("llama3.1-8b").weights)]
    printed = call("roofsurface", *RANKED).stdout
    assert printed.startswith(call("roofsurface", *RANKED[:4]).stdout) and "between ranks" not in printed


def test_ranks_that_heads_do_not_divide(call_for_records, tmp_path):
    """SmolLM2's three heads of keys: the rank with two of them counts."""
    figure = call_for_records(
        "roofsurface", *RANKED[:-1], "smollm2-135m", "--ranks", 2, "--html", tmp_path / "page.html"
    )
    one, two = (figure("decode", sockets=count, ranks=count) for count in (1, 2))
    assert one < two < 2 * one * (1 - figure("exchange_share", ranks=2))


def test_ranks_below_one(call):
    done = call("roofsurface", *RANKED, "--ranks", 0)
    assert done.returncode and "greater than or equal to 1" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--machine", "spr"], "no machine 'spr'"),
        (["--weights", "mxfp5"], "unknown format 'mxfp5'"),
        (["--density", "2"], "a density is above 0"),
        (["--decompressor", "dec"], "no decompressor"),
        (["--search", "--cores", "0"], "numbers above 0"),
        (["--weights", "int2:g32", "--density", "0.5"], "nobody has counted"),
        (["--weights", "mxfp4", "--acts", "bf17"], "add --decompressor kernels"),
        (["--ranks", "2"], "--ranks cuts a decoder: say which with --model"),
        (["--model", "lama-7b", "--ranks", "2"], "no model 'lama-7b'"),
        (["--model", "llama-7b", "--ranks", "3"], "3 ranks need as many sockets, and spr-hbm is described with 2"),
    ],
)
def test_errors(call, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("roofsurface", *arguments)
    assert done.returncode == 1 and message in done.stderr and not done.stdout
    assert not list(tmp_path.iterdir())
