"""`tilepress allocate`, as a user types it, on a tiny model."""

import json

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

from tilepress.models import read_recipe

CHOOSE = ("--choose", "int3:g32", "--choose", "int4:g32", "--choose", "int8:row", "--choose", "int8:row@50%")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, text = tiny.save(tmp_path_factory.mktemp("allocate") / "model")
    return str(folder), str(text)


@pytest.fixture
def options(model):
    return ("--calibration", model[1], "--sequences", 3, "--length", 16, *CHOOSE)


def test_a_recipe_that_compress_takes(model, options, tmp_path, call_for_records):
    out = tmp_path / "new" / "mixed.toml"
    figure = call_for_records("allocate", model[0], "--bits", 5, "-o", out, *options)
    assert 4.5 < figure("bits_per_weight", model=model[0]) <= 5
    assert (
        figure("predicted_loss", choice="int8:row")
        < figure("predicted_loss")
        < figure("predicted_loss", choice="int3:g32")
    )
    assert 0 < figure("predicted_loss", statistic="lower_bound") <= figure("predicted_loss")
    kind = "model.layers.*.mlp.down_proj"
    counts = [one.value for one in figure.records if one.metric == "layers" and one.labels["layer"] == kind]
    assert sum(counts) == 3 and figure("layers_size", layer=kind) < figure("layers_size") < figure("size")
    recipe = read_recipe(out)
    assert recipe.weights.format == "int4:g32" and 0 < len(recipe.weights.override) < 21
    assert recipe.calibration.text == model[1] and recipe.calibration.sequences == 128
    done = call_for_records("compress", model[0], "-o", tmp_path / "small", "--recipe", out)
    assert done("bits_per_weight") < 8


def test_another_budget_and_choice_measure_only_what_is_new(
    model, options, tmp_path, call, call_for_records, monkeypatch
):
    from tilepress.models import sensitivity

    out, measured, real = tmp_path / "mixed.toml", [], sensitivity._mean_error
    monkeypatch.setattr(sensitivity, "_mean_error", lambda *arguments: measured.append(1) or real(*arguments))
    done = call("allocate", model[0], "--bits", 5, "-o", out, *options)
    assert done.returncode == 0 and len(measured) == 21 * 4
    for words in ("3 × int", "all int3:g32", "mixed", "the best that fits", "all weights: ", "mixed.allocate.json"):
        assert words in done.stdout, words
    figure = call_for_records("allocate", model[0], "--megabytes", 0.12, "-o", out, *options)
    assert len(measured) == 21 * 4 and 0.1e6 < figure("size") <= 0.12e6
    call_for_records("allocate", model[0], "--bits", 7, "-o", out, *options, "--choose", "int6:g64")
    assert len(measured) == 21 * 5


def test_the_recipe_says_how_weights_are_compressed(model, options, tmp_path, call_for_records):
    calibration = f'[calibration]\ntext = "{model[1]}"\nsequences = 2\nlength = 24\n'
    (tmp_path / "r.toml").write_text(f'[weights]\nlm_head = "int8:row"\ndensity = 0.75\n{calibration}')
    out = tmp_path / "mixed.toml"
    methods = ("--recipe", tmp_path / "r.toml", "--quantize", "gptq", "--prune", "wanda", "--seed", 3)
    call_for_records("allocate", model[0], "--bits", 6, "-o", out, *options, *methods)
    recipe = read_recipe(out)
    assert (recipe.weights.quantize, recipe.weights.prune, recipe.weights.lm_head) == ("gptq", "wanda", "int8:row")
    assert (recipe.calibration.sequences, recipe.calibration.length, recipe.calibration.seed) == (2, 24, 3)
    assert {override.density for override in recipe.weights.override} == {None, 0.5}
    job = json.loads((tmp_path / "mixed.allocate.json").read_text())["job"]
    assert job["calibrated"] and job["methods"]["quantize"] == "gptq"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((), "a budget is --bits or --megabytes: give one of them"),
        (("--bits", 4, "--megabytes", 3), "a budget is --bits or --megabytes: give one of them"),
        (("--bits", 2), "2 bits a weight are too few: the smallest choices take 3."),
        (("--megabytes", 0.01), "0.01 MB are too few: with the smallest choices the model takes 0."),
        (("--bits", 99), "99 bits a weight are more than the largest choices take: give 8.45 or less"),
        (("--megabytes", 99), "99 MB are more than the largest choices take: give 0.13 or less"),
        (("--bits", 4, "--choose", "int4:g32@2"), "--choose int4:g32@2: a density is written 0.5 or 50%, say"),
        (("--bits", 4, "--sequences", 0), "layers are measured on calibration text, and sequences is 0"),
        (("--bits", 4, "--choose", "bf8", "--recipe", "int8.toml"), "--choose bf8: activations.format int8 wants"),
        (("--bits", 4, "--device", "tpu"), "'tpu' is no device"),
    ],
)
def test_what_is_wrong_is_said(model, options, tmp_path, call, monkeypatch, wrong, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "int8.toml").write_text('[activations]\nformat = "int8"\n')
    assert_refused(call("allocate", model[0], "-o", tmp_path / "m.toml", *options, *wrong), message)
    assert not list(tmp_path.glob("m.*"))


def test_losses_of_another_text_are_refused(model, options, tmp_path, call):
    out = tmp_path / "mixed.toml"
    assert call("allocate", model[0], "--bits", 5, "-o", out, *options).returncode == 0
    before = out.read_text()
    refused = call("allocate", model[0], "--bits", 5, "-o", out, *options, "--seed", 1)
    assert_refused(refused, "mixed.allocate.json holds losses of another model, method, text or version")
    assert out.read_text() == before
