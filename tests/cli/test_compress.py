"""`tilepress compress`, as a user types it, on a tiny model."""

import json
import re

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

from tilepress.models.loading import is_compressed


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, text = tiny.save(tmp_path_factory.mktemp("cli") / "model")
    return str(folder), str(text)


def test_options_override_the_recipe(model, tmp_path, call_for_records):
    folder, text = model
    (tmp_path / "r.toml").write_text(
        f'[weights]\nformat = "int8:row"\ndensity = 0.5\nprune = "wanda"\n'
        f'[calibration]\ntext = "{text}"\nsequences = 2\nlength = 16\n'
    )
    out = tmp_path / "out"
    options = ("--recipe", tmp_path / "r.toml", "--weights", "int4:g32", "--acts", "int8", "--lm-head", "compress")
    options += ("--reconstruct", 1, "--heal", 1)
    figure = call_for_records("compress", folder, "-o", out, *options)
    assert is_compressed(out) and figure("size", model=str(out)) < figure("source_size")
    assert figure("compression") == pytest.approx(figure("source_size") / figure("size"))
    assert 0 < figure("layer_error", layer="model.layers.0.mlp.up_proj") < 1
    assert figure.has("layer_error", layer="lm_head") and isinstance(figure("sparse_pays"), bool)
    weights = json.loads((out / "config.json").read_text())["quantization_config"]["recipe"]["weights"]
    assert (weights["reconstruct"], weights["heal"], weights["prune"]) == (1, 1, "wanda")
    layer = {"format": "int4:g32", "activations": "int8", "shape": "128x64", "batch": 1}
    assert figure("time", **layer, density=0.5) > 0 and figure("time", **layer, density=1) > 0


def test_the_table_and_an_output_that_is_not_ours(model, tmp_path, call):
    done = call("compress", model[0], "-o", tmp_path / "out", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "compressed</title>" in page and "layer model.layers.0.mlp.up_proj" in page
    assert re.match(r".*/out: [\d.]+ times smaller, [\d.]+ MB to [\d.]+ MB; no layer's output lost more", done.stdout)
    for words in ("size before", "times smaller", "bits a weight, in them", "time"):
        assert words in done.stdout
    assert done.stdout.count("error of model.layers.") == 5 and "warning" not in done.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x").write_text("")
    assert_refused(call("compress", model[0], "-o", tmp_path / "mine"), "is not a model that tilepress wrote")


def test_what_is_wrong_is_said(model, tmp_path, call):
    out = ("-o", tmp_path / "out")
    assert_refused(call("compress", model[0], *out, "--weights", "int44:g32"), "weights.format: unknown format 'int44")
    assert_refused(call("compress", model[0], *out, "--weights", "bf16", "--acts", "int8"), "wants integer weights")
    (tmp_path / "r.toml").write_text("weights = 3")
    assert_refused(call("compress", model[0], *out, "--recipe", tmp_path / "r.toml", "--weights", "bf16"), "weights: ")
    assert_refused(call("compress", model[0], *out, "--recipe", tmp_path / "none"), "none: No such file or directory")
    assert_refused(
        call("compress", model[0], *out, "--acts", "zz"), "activations.format: activations are fp, bf16, int8"
    )
    assert_refused(
        call("compress", model[0], *out, "--density", "0"), "weights.density: Input should be greater than 0"
    )
    assert_refused(
        call("compress", model[0], *out, "--seed", str(2**63)), "calibration.seed: Input should be less than"
    )
    assert not (tmp_path / "out").exists()


def test_the_warning_says_by_how_much():
    from types import SimpleNamespace

    from tilepress.cli.compress import _pays, _warning

    timings = [SimpleNamespace(name="int4:g32", seconds=1.0), SimpleNamespace(name="int4:g32@50%", seconds=1.5)]
    race = SimpleNamespace(timings=timings, shape="8x8")
    assert not _pays(race) and "takes 1.50 times as long as int4:g32" in _warning(race)
    timings[1].seconds = 0.5
    assert _pays(race)


def test_what_stays_dense_and_an_override_in_vain_are_said(model, tmp_path, call, call_for_records):
    keep = ("--embedding", "keep")
    done = call("compress", model[0], "-o", tmp_path / "out", *keep)
    assert "left dense: lm_head" in done.stdout and "0.0 M weights: weights.lm_head is keep" in done.stdout
    figure = call_for_records("compress", model[0], "-o", tmp_path / "out", *keep)
    assert figure("left_dense", layer="lm_head") == "weights.lm_head is keep"
    stated = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert stated["dense"] == {"lm_head": "weights.lm_head is keep"}
    (tmp_path / "r.toml").write_text('[[weights.override]]\nmatch = "*.w1"\ndensity = 0.5\n')
    refused = call("compress", model[0], "-o", tmp_path / "none", "--recipe", tmp_path / "r.toml")
    assert_refused(refused, "weights.override[0].match: '*.w1' fits no layer")


def test_workers_give_the_bytes_of_one_process(model, tmp_path, call, workers_here):
    folder, text = model
    options = ("--quantize", "gptq", "--calibration", text, "--sequences", 2, "--length", 16)
    call("compress", folder, "-o", tmp_path / "alone", *options)
    call("compress", folder, "-o", tmp_path / "over", *options, "--workers", 2, "--threads", 1)
    assert workers_here == [(1, None), (2, 1)]
    alone, over = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("alone", "over"))
    assert alone == over


def test_no_ray_cluster_is_one_sentence(model, tmp_path, call):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    done = call("compress", model[0], "-o", tmp_path / "out", "--ray", "127.0.0.1:1")
    assert_refused(done, "no Ray cluster answers at 127.0.0.1:1")
