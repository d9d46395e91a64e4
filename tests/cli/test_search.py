"""`tilepress search`, as a user types it, on a tiny model."""

import json
from itertools import pairwise

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

from tilepress.models import load_model, read_recipe
from tilepress.models.registration import packed_layers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, text = tiny.save(tmp_path_factory.mktemp("search") / "model")
    return str(folder), str(text)


@pytest.fixture
def options(model, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEPRESS_DATA", str(tmp_path))
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path))
    return ("--calibration", model[1], "--sequences", 3, "--length", 24)


def test_a_recipe_that_compress_takes(model, options, tmp_path, call_for_records):
    out = tmp_path / "new" / "anda.toml"
    texts = ("--validate", model[1], "--windows", 1, "--time-gptq")
    figure = call_for_records("search", model[0], "-o", out, "--tolerance", "5%", *options, *texts)
    assert figure("within_tolerance") and figure("loss") <= 5 and figure("bops_saving") > 1.23
    assert figure("perplexity") <= 1.05 * figure("reference_perplexity")
    assert figure("time", method="gptq") > 0 and figure("time", model=model[0]) > 0
    recipe = read_recipe(out)
    assert recipe.activations.format == figure("activations") and recipe.calibration.sequences == 3
    assert recipe.weights.format == "int4:g32"
    for scheme, saving in (("FP16", 1), ("FIGNA", 16 / 13), ("VS-Quant", 4), ("Harmonia BFP8", 2)):
        assert figure("bops_saving", text=model[1], scheme=scheme) == pytest.approx(saving)
    assert figure("loss", scheme="FP16") == 0 < abs(figure("loss", scheme="VS-Quant"))
    assert figure("perplexity", scheme="Anda 5 %") > 1
    page = out.with_suffix(".search.html").read_text()
    assert "<!doctype html>" in page and "best so far" in page and "tolerance" in page and len(page) < 200_000
    call_for_records("compress", model[0], "-o", tmp_path / "out", "--recipe", out)
    layers = dict(packed_layers(load_model(str(tmp_path / "out")).model))
    bits = figure("activations").removeprefix("anda:").split(",")
    names = ("self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
    for name, mantissa in zip(names, bits, strict=True):
        assert layers[f"model.layers.2.{name}"].activations == f"bfp:g64:m{mantissa}"


def test_steps_and_resuming(model, options, tmp_path, call_for_records, monkeypatch):
    from tilepress.models import precision

    out = tmp_path / "anda.toml"
    first = call_for_records("search", model[0], "-o", out, *options)
    costs = [
        first("mantissas", step=number)
        for number in range(1, first("iterations") + 1)
        if first("accepted", step=number)
    ]
    assert costs[-1] == first("activations").removeprefix("anda:") and all(a != b for a, b in pairwise(costs))
    saved = json.loads((tmp_path / "anda.search.json").read_text())
    assert saved["perplexities"]["fp"] == first("reference_perplexity")
    # An interrupted run: the last two evaluations are missing.
    last = list(saved["perplexities"])[-2:]
    for key in last:
        del saved["perplexities"][key]
    (tmp_path / "anda.search.json").write_text(json.dumps(saved))
    computed, real = [], precision.Judge._compute
    monkeypatch.setattr(
        precision.Judge, "_compute", lambda judge, mantissas: computed.append(mantissas) or real(judge, mantissas)
    )
    again = call_for_records("search", model[0], "-o", out, *options)
    assert [",".join(map(str, mantissas)) for mantissas in computed] == last
    pairs = zip(first.records, again.records, strict=True)
    assert {one.metric for one, other in pairs if one != other} <= {"time"}


def test_workers_find_the_same(model, options, tmp_path, call_for_records, workers_here):
    alone = call_for_records("search", model[0], "-o", tmp_path / "alone.toml", *options)
    shared = call_for_records("search", model[0], "-o", tmp_path / "shared.toml", *options, "--workers", 2)
    assert workers_here == [(1, None), (2, None)]
    assert (tmp_path / "shared.toml").read_text() == (tmp_path / "alone.toml").read_text()
    for metric in ("mantissas", "accepted"):
        numbers = range(1, alone("iterations") + 1)
        assert [shared(metric, step=one) for one in numbers] == [alone(metric, step=one) for one in numbers]
    known = [json.loads((tmp_path / f"{name}.search.json").read_text()) for name in ("alone", "shared")]
    assert known[0]["job"] == known[1]["job"]
    values = known[1]["perplexities"]
    assert {key: values[key] for key in known[0]["perplexities"]} == pytest.approx(known[0]["perplexities"], rel=1e-5)


def test_evaluations_of_something_else_are_refused(model, options, tmp_path, call):
    out = tmp_path / "anda.toml"
    assert call("search", model[0], "-o", out, "--tolerance", "20%", *options).returncode == 0
    other = ("--calibration", model[1], "--sequences", 2, "--length", 24)
    assert_refused(call("search", model[0], "-o", out, *other), "anda.search.json holds evaluations of another model")
    (tmp_path / "anda.search.json").write_text("{}")
    assert_refused(call("search", model[0], "-o", out, *options), "is not what a search left")


def test_a_compressed_model_keeps_its_weights(model, options, tmp_path, call, call_for_records):
    small, out = tmp_path / "small", tmp_path / "anda.toml"
    call_for_records("compress", model[0], "-o", small, "--weights", "int8:g32", "--acts", "int8")
    figure = call_for_records("search", small, "-o", out, "--tolerance", "20%", *options)
    recipe = read_recipe(out)
    assert recipe.weights.format == "int8:g32" and recipe.activations.format == figure("activations")
    refused = call("search", small, "-o", out, "--weights", "int4:g32", *options)
    assert_refused(refused, "is compressed already: leave its weights as they are")


def test_brute_force_is_no_worse(model, options, tmp_path, call_for_records):
    figure = call_for_records(
        "search", model[0], "-o", tmp_path / "a.toml", "--tolerance", "60%", *options, "--brute-force"
    )
    assert figure("bops_saving", method="brute force") >= figure("bops_saving")


def test_the_tables_and_a_tolerance_that_nothing_meets(model, options, tmp_path, call, monkeypatch):
    from tilepress.models import precision

    real = precision.Judge._compute
    monkeypatch.setattr(
        precision.Judge,
        "_compute",
        lambda judge, mantissas: real(judge, None) * (1 if mantissas is None else 2 - sum(mantissas) / 100),
    )
    done = call("search", model[0], "-o", tmp_path / "a.toml", "--tolerance", "0.1%", *options)
    assert done.returncode == 0, done.stderr
    assert "no combination keeps within 0.1 % on this text; anda:13,13,13,13, the most precise one" in done.stderr
    assert "anda:13,13,13,13 on the calibration text" in done.stdout and "time: " in done.stdout


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--tolerance", "0.01"), "a tolerance is a percentage, 1% or 0.1% say, not '0.01'"),
        (("--group", 48), "BFP group must be one of (16, 32, 64, 128), got 48"),
        (("--weights", "mxfp4"), "wants integer weights, and weights.format is mxfp4"),
        (("--calibration", "nowhere.txt"), "there is no file nowhere.txt"),
        (("--validate", "nowhere.txt"), "there is no file nowhere.txt"),
        (("--sequences", 0), "anda:1% looks at calibration inputs, and calibration.sequences is 0"),
        (("--length", 4000), "fewer than calibration.length 4000"),
        (("--device", "gpu9"), "'gpu9' is no device"),
    ],
)
def test_what_is_wrong_is_said(model, options, tmp_path, call, wrong, message):
    assert_refused(call("search", model[0], "-o", tmp_path / "a.toml", *options, *wrong), message)
    assert not (tmp_path / "a.toml").exists()


def test_an_empty_calibration_text(model, tmp_path, call):
    (tmp_path / "empty.txt").write_text(" \n")
    done = call("search", model[0], "-o", tmp_path / "a.toml", "--calibration", tmp_path / "empty.txt")
    assert_refused(done, "empty.txt is empty; give a file with some text in it")


def test_search_inside_compress(model, tmp_path, call_for_records):
    options = ("--calibration", model[1], "--sequences", 3, "--length", 24, "--acts", "anda:5%")
    figure = call_for_records("compress", model[0], "-o", tmp_path / "out", *options)
    assert figure("search_within_tolerance") and figure("search_loss") <= 5 and figure("search_time") > 0
    loaded = load_model(str(tmp_path / "out")).model
    assert loaded.config.quantization_config.recipe["activations"]["format"] == figure("search_activations")
    bits = figure("search_activations").removeprefix("anda:").split(",")
    assert loaded.model.layers[1].mlp.down_proj.activations == f"bfp:g64:m{bits[3]}"
    assert not (tmp_path / "out.partial").exists()


def test_another_tolerance_goes_on_with_what_is_known(model, options, tmp_path, call_for_records):
    out = tmp_path / "anda.toml"
    call_for_records("search", model[0], "-o", out, "--tolerance", "20%", *options)
    known = json.loads((tmp_path / "anda.search.json").read_text())["perplexities"]
    figure = call_for_records("search", model[0], "-o", out, "--tolerance", "5%", *options)
    assert json.loads((tmp_path / "anda.search.json").read_text())["perplexities"].items() >= known.items()
    assert figure("loss") <= 5 and read_recipe(out).activations.format == figure("activations")
