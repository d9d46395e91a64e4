"""Folders that other tools quantised, packed as they are."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models import mixtures, tiny
from tests.models.quantized import folders, writers
from tilepress.models import ModelUnavailableError, compress_folder, load_model
from tilepress.models.registration import unpack_layers
from tilepress.tiles import unpack

DOWN = "model.layers.1.mlp.down_proj"


@pytest.fixture(scope="module")
def gptq(tmp_path_factory):
    return folders.gptq(tmp_path_factory.mktemp("gptq") / "model")


def compress(folder, out, recipe=None):
    said = []
    return compress_folder(str(folder), out, recipe or {}, announce=said.append), said


def test_a_checkpoint_is_packed_as_it_is(gptq, tmp_path):
    folder, expected = gptq
    outcome, said = compress(folder, tmp_path / "out")
    assert said == [f"{folder}: 21 of 21 layers have the codes and scales of gptq"]
    assert {layer.name for layer in outcome.layers} == expected.keys()
    assert {(layer.format, layer.error, layer.rounding) for layer in outcome.layers} == {("uint4:g32", 0.0, "")}
    assert not [dense for dense in outcome.dense if dense.name != "lm_head"]
    model = load_model(str(tmp_path / "out"), dtype=torch.float32).model
    for name, weight in expected.items():
        assert torch.equal(unpack(model.get_submodule(name).matrix), weight)
    logits = model(tiny.windows()).logits
    assert torch.allclose(logits, unpack_layers(model)(tiny.windows()).logits, atol=1e-3)
    stated = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert stated["quant_method"] == "tilepress" and stated["recipe"]["weights"]["grid"] == "source"


def test_what_cannot_be_held_is_rounded_and_said(tmp_path):
    folder, expected = folders.gptq(tmp_path / "model", scattered=[DOWN])
    outcome, said = compress(folder, tmp_path / "out")
    assert said[0].endswith("20 of 21 layers have the codes and scales of gptq")
    assert said[1].startswith(f"1 layers are rounded a second time, {DOWN} first: its inputs are grouped in another")
    (layer,) = [layer for layer in outcome.layers if layer.rounding]
    assert layer.name == DOWN and layer.format == "uint4:g32" and 0 < layer.error < 0.02
    model = load_model(str(tmp_path / "out")).model
    moved = float((unpack(model.get_submodule(DOWN).matrix) - expected[DOWN]).abs().max())
    assert layer.rounding == (
        "its inputs are grouped in another order than they come in (desc_act): rounded to uint4:g32, "
        f"weights moved by {moved:.2g} at most"
    )


@pytest.mark.parametrize("weights", [{"format": "int8:g32"}, {"density": 0.5}, {"heal": 1}, {"reconstruct": 1}])
def test_other_weights_are_rounded_a_second_time_and_said(gptq, tmp_path, weights):
    folder, expected = gptq
    calibration = {"text": str(folder.parent / "text.txt"), "sequences": 2, "length": 16}
    outcome, said = compress(folder, tmp_path / "out", {"weights": weights, "calibration": calibration})
    (key,) = weights
    assert re.search(f"by gptq already, and the recipe states weights.{key}: its weights are rounded a", said[0])
    assert all(layer.error > 0 for layer in outcome.layers) or key in ("heal", "reconstruct")  # on the same grid
    if key == "format":
        weight = unpack(load_model(str(tmp_path / "out")).model.get_submodule(DOWN).matrix)
        assert (weight - expected[DOWN]).abs().max() < expected[DOWN].abs().max() / 250


def test_layers_that_are_not_the_models_are_not_packed_as_they_come(tmp_path):
    mixtures.make("qwen3_moe").save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")

    def parts_of(_, shape):
        codes, scales = torch.zeros(shape).int(), torch.ones(shape[0], shape[1] // 32).half()
        return writers.gptq(codes, scales.int(), scales, 4, torch.arange(shape[1]) // 32)

    folder = folders.quantise(tmp_path / "model", folders.GPTQ, parts_of)
    with pytest.raises(ModelUnavailableError, match="cannot be packed as it comes; --weights int4:g32, say, rounds"):
        compress(folder, tmp_path / "out")
    outcome, said = compress(folder, tmp_path / "out", {"weights": {"format": "int4:g32"}})
    assert "the recipe states weights.format: its weights are rounded a second time" in said[0]
    assert any("experts" in layer.name for layer in outcome.layers)


def test_an_interrupted_import_goes_on(gptq, tmp_path):
    class Stop(Exception):
        pass

    def stop(state):
        if state.done == 2:
            raise Stop

    whole, _ = compress(gptq[0], tmp_path / "whole")
    with pytest.raises(Stop):
        compress_folder(str(gptq[0]), tmp_path / "out", {}, progress=stop)
    resumed, _ = compress(gptq[0], tmp_path / "out")
    assert resumed.layers == whole.layers
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_source_grid_needs_a_source(tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    with pytest.raises(ValueError, match="is not quantised by another tool, so it has no grid to take"):
        compress(folder, tmp_path / "out", {"weights": {"grid": "source"}})


def test_offline_smoothing_rounds_anew(tmp_path):
    folder, _ = folders.gptq(tmp_path / "model", num_attention_heads=2, num_key_value_heads=1)
    recipe = {
        "kv_cache": {"format": "bfp4", "smoothing": "offline"},
        "calibration": {"text": str(tmp_path / "text.txt"), "sequences": 2, "length": 16},
    }
    _, said = compress(folder, tmp_path / "out", recipe)
    assert "offline smoothing changes weights: its weights are rounded a second time, to int4:g32" in said[0]


def test_integer_activations_take_integer_grids_only(gptq, tmp_path):
    compress(gptq[0], tmp_path / "out", {"activations": {"format": "int8"}})
    assert load_model(str(tmp_path / "out")).model.get_submodule(DOWN).activations == "int8"

    def fp8(name, shape):
        return {"weight": torch.ones(shape).to(torch.float8_e4m3fn), "weight_scale": torch.ones(1)}

    folder = folders.save(tmp_path / "fp8", {"quant_method": "fp8"}, fp8)
    with pytest.raises(ValueError, match=r"int8 activations need integer weights, and \S+q_proj comes as e4m3:row"):
        compress(folder, tmp_path / "other", {"activations": {"format": "int8"}})


def test_what_is_quantised_is_not_loaded_before_it_is_packed(gptq):
    with pytest.raises(ModelUnavailableError, match=r"by gptq, and has to be packed first, .*: tilepress compress /"):
        load_model(str(gptq[0]))


def test_settings_in_a_file_beside(gptq, tmp_path):
    folder, expected = folders.gptq(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "quantize_config.json").write_text(json.dumps(config.pop("quantization_config")))
    (folder / "config.json").write_text(json.dumps(config))
    compress(folder, tmp_path / "out")
    assert not (tmp_path / "out/quantize_config.json").exists()
    assert torch.equal(unpack(load_model(str(tmp_path / "out")).model.get_submodule(DOWN).matrix), expected[DOWN])


def test_an_output_layer_that_is_quantised(tmp_path):
    """Its codes are packed too, and the embedding keeps its own weights."""
    folder, _ = folders.gptq(tmp_path / "model", tie_word_embeddings=False)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    parts = {name: tensors[f"{DOWN}.{name}"] for name in ("qweight", "qzeros", "scales", "g_idx")}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 64, "hidden_size": 64}))
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:64].clone()
    del tensors["lm_head.weight"]
    up = "model.layers.1.self_attn.q_proj"  # 64 × 64
    parts = {name: tensors[f"{up}.{name}"].clone() for name in parts}
    save_file(tensors | {f"lm_head.{name}": part for name, part in parts.items()}, path, {"format": "pt"})
    outcome, _ = compress(folder, tmp_path / "out")
    assert outcome.layers[-1].name == "lm_head" and not outcome.dense
    model = load_model(str(tmp_path / "out")).model
    assert torch.equal(unpack(model.lm_head.matrix), unpack(model.get_submodule(up).matrix))
