import math

import pytest

from tilepress.records import Record, to_json

SMALL = ("--model", "smollm2-135m", "--tokens", 128)


def test_array(call, call_for_records):
    figure = call_for_records("simulate", "array", "harmonia", *SMALL, "--each")
    run = {"design": "harmonia", "model": "SmolLM2-135M", "stage": "prefill", "tokens": 128, "batch": 1}
    for mapping in ("pinned", "best"):
        run["mapping"] = mapping
        assert figure("time", **run) > 0 and figure("area", **run) == pytest.approx(4.45, abs=0.01)
        of_run = [one for one in figure.records if one.metric == "energy" and one.labels["mapping"] == mapping]
        parts = [one.value for one in of_run if "part" in one.labels]
        assert len(parts) > 1 and sum(parts) == pytest.approx(figure("energy", **run))
    assert figure("energy", mapping="best") < figure("energy", mapping="pinned")
    done = call("simulate", "array", "anda", *SMALL, "--stage", "decode", "--acts", "anda:7,7,6,5")
    assert done.returncode == 0 and "utilisation" in done.stdout and "pinned" in done.stdout and "best" in done.stdout


def test_each_product_has_time_energy_and_traffic(call, call_for_records):
    figure = call_for_records("simulate", "array", "harmonia", *SMALL, "--each", "--mapping", "pinned")
    products = {one.labels["product"] for one in figure.records if "product" in one.labels}
    assert "q 128x576x576" in products and "harmonia, 64 × 64" in figure("bound", product="q 128x576x576")
    for metric in ("time", "energy", "dram"):
        assert sum(figure(metric, product=one) for one in products) == pytest.approx(figure(metric))
    assert all(0 < figure("utilisation", product=one) <= 100 for one in products)
    shown = call("simulate", "array", "harmonia", *SMALL, "--each").stdout
    assert "GB of DRAM" in shown and "bound by" in shown and "q 128x576x576" in shown


def test_mantissas_orders_and_mappings_change_time_and_traffic(call_for_records):
    def figure(metric, *arguments, mapping="pinned"):
        options = ("--scope", "linear", "--mapping", mapping)
        return call_for_records("simulate", "array", *arguments, *SMALL, *options)(metric)

    assert figure("time", "anda", "--acts", "bfp:g64:m4") < figure("time", "anda", "--acts", "bfp:g64:m8")
    rows, columns = (figure("dram", "harmonia", "--order", order) for order in ("row-major", "column-major"))
    assert rows != columns
    least = {goal: figure("energy", "anda", "--objective", goal, mapping="best") for goal in ("time", "energy")}
    assert least["energy"] < least["time"]


def test_lists(call, call_for_records):
    figure = call_for_records("simulate", "array", "--fitted")
    assert figure("fitted_parameter", simulator="arrays", parameter="sram_density") == 0.79
    assert "fitted to" in call("simulate", "array", "--fitted").stdout
    assert "figna-m11" in call("simulate", "array", "--list").stdout
    assert call_for_records("simulate", "array", "--list").has("title", design="tender")


def losses(path, formats, **labels):
    """A file of losses by window: formats → nats of each."""
    known = {"model": "smollm2-135m", "text": "wikitext2", "tokens": 128} | labels
    records = [
        Record("loss", known | dict(one) | {"window": number}, value, "nat", "measured", "here", "measuring")
        for one, values in formats.items()
        for number, value in enumerate(values)
    ]
    path.write_text(to_json(records))
    return path


PLAIN, ANDA_8, ANDA_4 = (), (("activations", "bfp:g64:m8"),), (("activations", "bfp:g64:m4"),)
HARMONIA = (("activations", "bfp:g32:m8"), ("kv", "bfp4"), ("smoothing", "hybrid"))
LOSSES = {PLAIN: [3.0, 2.8], ANDA_8: [3.001, 2.801], ANDA_4: [3.3, 3.1], HARMONIA: [3.04, 2.84]}


def test_compare_with_a_front(call, call_for_records, tmp_path):
    options = ("--tokens", "64,256", "--quality", losses(tmp_path / "quality.json", LOSSES))
    figure = call_for_records("simulate", "compare", *options)
    assert figure("time", design="deca", model="SmolLM2-135M", stage="decode", tokens=256) > 0
    assert figure("energy", design="figna", mapping="best", stage="prefill", tokens=64, logic="RTL") > 0
    ruined = {"design": "anda", "activations": "bfp:g64:m4", "kv": "fp16", "model": "SmolLM2-135M", "tokens": 128}
    assert figure("loss", **ruined) == pytest.approx(100 * math.expm1(0.3))
    assert figure("loss", statistic="standard_error", **ruined) == pytest.approx(0, abs=1e-9)
    assert figure("on_front", design="harmonia", activations="bfp:g32:m8", kv="bfp4+hybrid") is True
    page = tmp_path / "designs.html"
    shown = call("simulate", "compare", "anda", "harmonia", *options, "--html", page).stdout
    assert "on the front" in shown and "SmolLM2-135M, a prompt of 128 tokens" in shown
    assert "more than 2 standard errors; there are 2." in shown
    assert "Loss and energy" in page.read_text() and "decode: energy" in page.read_text()


def test_losses_and_costs_are_of_the_same_model(call, tmp_path):
    path = losses(tmp_path / "quality.json", LOSSES)
    done = call("simulate", "compare", "anda", "--quality", path, "--model", "llama3.2-3b")
    assert done.returncode == 1 and "the losses are of smollm2-135m, and their costs must be, too" in done.stderr
    done = call("simulate", "compare", "anda", "--tokens", "64", "--quality", path, "--model", "SmolLM2-135M")
    assert done.returncode == 0


GIVEN = """\
like: fp16-fp16
name: bought
unit: {rtl: null, given: {node: 28, voltage: 0.9, area: 2000, energy: {fixed: 1.5}}}
sources: {unit: a data sheet}
"""


def test_compare_says_where_areas_and_energies_come_from(call, call_for_records, tmp_path):
    path = tmp_path / "bought.yaml"
    path.write_text(GIVEN)
    options = ("compare", "anda", "m-ant", path, "deca", "--model", "smollm2-135m", "--tokens", "64")
    figure = call_for_records("simulate", *options, "--mapping", "pinned", "--weights", "int4:g128")
    for design, logic in (("anda", "RTL"), ("m-ant", "RTL"), ("bought", "given"), ("deca", "RTL")):
        assert figure("area", design=design, stage="prefill", logic=logic) > 0
    shown = " ".join(call("simulate", *options).stdout.split())
    assert "our RTL, synthesised in cells of 7 nm, or given by the machine's description" in shown


@pytest.mark.parametrize(
    "formats, message",
    [
        ({}, "holds no losses by window; python benchmarks/activations.py makes such records"),
        ({ANDA_8: [3.0, 2.8]}, "lacks the losses without rounding"),
        ({PLAIN: [3.0], ANDA_8: [3.0]}, "every format needs the same windows, two at least"),
        ({PLAIN: [3.0, 2.8, 2.9], ANDA_8: [3.0, 2.8]}, "every format needs the same windows"),
        ({PLAIN: [3.0, 2.8], (("model", "llama-7b"),): [3.0, 2.8]}, "several models, texts or lengths of windows"),
    ],
)
def test_losses_that_do_not_compare(call, tmp_path, formats, message):
    done = call("simulate", "compare", "anda", "--quality", losses(tmp_path / "quality.json", formats))
    assert done.returncode == 1 and message in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["array", "andy"], "no accelerator 'andy'; did you mean 'anda'?"),
        (["array", "anda", "--model", "gpt-2"], "no model 'gpt-2'"),
        (["array", "anda", "--tokens", "0"], "at least one token and one sequence, not 0 and 1"),
        (["array", "anda", "--batch", "-2"], "at least one token and one sequence, not 2048 and -2"),
        (["array", "anda", "--kv", "bfp4"], "anda attends with FP16 and cannot multiply"),
        (["array", "harmonia", "--acts", "bfp:g32:m9"], "harmonia cannot multiply bfp m9 × int4"),
        (["compare", "--tokens", "2K"], "--tokens needs lengths with commas between"),
        (["compare", "--area", "-1"], "area is above 0, not -1"),
        (["compare", "--area", "1e-9"], "no unit of anda"),
        (["compare", "--quality", "none.json"], "none.json holds no losses by window"),
    ],
)
def test_errors(call, arguments, message):
    done = call("simulate", *arguments)
    assert done.returncode == 1 and message in done.stderr


def test_a_buffer_too_small(call, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text("like: anda\nname: tiny\nbuffers: {activations: 1024, weights: 1024}\nsources: {buffers: mine}\n")
    done = call("simulate", "array", path)
    assert done.returncode == 1 and "is larger than its buffer of 1024 bytes" in done.stderr


@pytest.mark.parametrize(
    ("machine", "acts", "refused"),
    [
        ("anda", "bfp:g32:m8", "anda computes in groups of 64, not of 32: give bfp:g64:m8, or mantissas alone"),
        ("harmonia", "anda:g64:8,8,8,8", "harmonia computes in groups of 32, not of 64: give anda:g32:8,8,8,8"),
        ("figna", "bfp:g32:m8", "figna takes activations in fp16, not bfp:g32:m8: leave --acts out"),
        ("tender", "anda:8,8,8,8", "tender takes activations in int8"),
        ("harmonia", "bfp:g32:m8", None),
        ("harmonia", "anda:8,8,8,8", None),
        ("figna", "fp16", None),
    ],
)
def test_activations_that_a_machine_does_not_take_are_refused(call, machine, acts, refused):
    done = call("simulate", "array", machine, "--acts", acts, *SMALL)
    assert done.returncode == (1 if refused else 0) and (refused or "") in done.stderr


def test_compare_refuses_them_for_each_machine(call):
    done = call("simulate", "compare", "anda", "harmonia", "--acts", "bfp:g64:m8", *SMALL)
    assert done.returncode == 1 and "harmonia computes in groups of 32, not of 64" in done.stderr
