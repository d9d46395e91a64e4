"""Blocks trained after compression: what falls, what stays, and that it can be interrupted."""

import pytest
import torch
from torch import nn

from tests.models import tiny
from tests.models.test_compress_to_folder import Stop, contents, stop_after
from tilepress import tiles
from tilepress.models import compress as compressing
from tilepress.models import compress_folder, compress_model
from tilepress.models.recipe import RecipeError, read_recipe
from tilepress.models.reconstruct import divided, shuffled
from tilepress.models.registration import packed_layers
from tilepress.nn.emulation import round_inputs, roundings


def recipe(format="bf16", density=0.5, steps=12, activations="fp", **weights):
    chosen = {
        "format": format,
        "embedding": "keep",
        "density": density,
        "prune": "wanda",
        "reconstruct": steps,
        **weights,
    }
    return {"weights": chosen, "activations": {"format": activations}}


@pytest.fixture
def seen(monkeypatch):
    """What `reconstruct` gave for each block."""
    results, real = [], compressing.reconstruct

    def spy(*arguments):
        results.append(real(*arguments))
        return results[-1]

    monkeypatch.setattr(compressing, "reconstruct", spy)
    return results


def masks(model):
    return {name: tiles.unpack_codes(layer.matrix)[1] for name, layer in packed_layers(model)}


@pytest.mark.parametrize(("format", "density", "activations"), [
    ("bf16", 0.5, "fp"), ("int8:row", 0.5, "int8"), ("uint3:g64", 1.0, "fp"), ("int4:g32", 0.5, "bfp:g32:m7"),
])  # fmt: skip
def test_a_blocks_outputs_come_nearer_to_the_dense_ones(format, density, activations, seen, monkeypatch):
    monkeypatch.setattr(compressing, "RATE", 0.03)  # few steps, and a tiny block
    tokens = tiny.windows(3, 32)
    before = compress_model(tiny.make("llama"), recipe(format, density, 0, activations), windows=tokens)
    model = compress_model(tiny.make("llama"), recipe(format, density, 20, activations), windows=tokens)
    assert len(seen) == 3 and all(result.after <= result.before for result in seen)
    assert sum(result.after for result in seen) < 0.97 * sum(result.before for result in seen)
    kept, trained = masks(before), masks(model)
    for name, mask in kept.items():
        if mask is not None and ".layers.0." in name:  # later ones are chosen by what this block gives
            assert torch.equal(mask, trained[name])
        assert (mask is None) == (trained[name] is None) and (mask is None or mask.sum() == trained[name].sum())
    assert {str(layer.matrix.format) for _, layer in packed_layers(model)} == {format}


def test_packed_layers_compute_what_was_trained(seen):
    """The loss of the packed block is the one that training ended with."""
    tokens, model = tiny.windows(3, 32), tiny.make("llama")
    dense = tiny.make("llama").model.layers[0]
    compress_model(model, recipe("int8:row", 0.5, 20, "int8"), windows=tokens)
    losses = []
    with torch.no_grad():
        for window in tokens:
            given = []
            for block in (dense, model.model.layers[0]):
                hidden = model.model.embed_tokens(window[None])
                places = torch.arange(32)[None]
                rotary = model.model.rotary_emb(hidden, places)
                given.append(block(hidden, position_embeddings=rotary, position_ids=places))
            lost = (given[1] - given[0]).square().sum(-1) / given[0].square().sum(-1)
            losses.append(float(lost.mean()))
    assert sum(losses) / 3 == pytest.approx(seen[0].after, rel=1e-3)
    assert seen[0].after < seen[0].before


def test_a_block_that_gets_no_better_stays_as_it_was(monkeypatch):
    monkeypatch.setattr(compressing, "RATE", 1e3)
    tokens = tiny.windows(4)
    untrained = compress_model(tiny.make("llama"), recipe(steps=0), windows=tokens)
    model = compress_model(tiny.make("llama"), recipe(), windows=tokens)
    one, other = untrained.state_dict(), model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_norms_are_trained_and_stay_in_their_type():
    model, before = tiny.make("qwen2").to(torch.bfloat16), tiny.make("qwen2").to(torch.bfloat16)
    compress_model(model, recipe(steps=20), windows=tiny.windows(3, 32))
    name = "model.layers.1.post_attention_layernorm.weight"
    assert model.get_parameter(name).dtype == torch.bfloat16
    assert not torch.equal(model.get_parameter(name), before.get_parameter(name))
    assert torch.equal(model.model.norm.weight, before.model.norm.weight)  # of no block


def test_the_bytes_do_not_depend_on_threads_but_on_the_seed():
    before, results = torch.get_num_threads(), []
    try:
        for threads, seed in ((1, 0), (3, 0), (1, 1)):
            torch.set_num_threads(threads)
            chosen = recipe() | {"calibration": {"seed": seed}}
            results.append(compress_model(tiny.make("llama"), chosen, windows=tiny.windows(6)).state_dict())
    finally:
        torch.set_num_threads(before)
    same = [all(torch.equal(one[name], results[0][name]) for name in one) for one in results[1:]]
    assert same == [True, False]


def test_it_trains_in_inference_mode_too():
    one, other = tiny.make("llama"), tiny.make("llama")
    expected = compress_model(one, recipe(), windows=tiny.windows(4)).state_dict()
    with torch.inference_mode():
        inside = compress_model(other, recipe(), windows=tiny.windows(4)).state_dict()
        made = tiny.make("llama")
    assert all(torch.equal(expected[name], inside[name]) for name in expected)
    with pytest.raises(ValueError, match=r"inference_mode\(\) cannot be trained: load the model outside"):
        compress_model(made, recipe(), windows=tiny.windows(4))


@pytest.mark.parametrize("family", ["opt", "gpt_neox"])
def test_other_families(family, seen):
    compress_model(tiny.make(family), recipe(), windows=tiny.windows(3))
    assert all(result.best for result in seen)


def test_interrupted_and_resumed_is_uninterrupted(llama_folder, tmp_path, recipe):
    trained = recipe | {"weights": recipe["weights"] | {"reconstruct": 6}}
    compress_folder(str(llama_folder[0]), tmp_path / "whole", trained)
    with pytest.raises(Stop):
        compress_folder(str(llama_folder[0]), tmp_path / "out", trained, progress=stop_after(2))
    compress_folder(str(llama_folder[0]), tmp_path / "out", trained)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_windows_that_judge_are_not_trained_on():
    assert divided(3) == ([0, 1, 2], [0, 1, 2])
    assert divided(9) == ([0, 1, 2, 3, 4, 5, 6], [7, 8])
    learned, judges = divided(128)
    assert len(judges) == 8 and not set(learned) & set(judges) and len(learned) == 120


def test_windows_come_equally_often_in_an_order_of_the_seed():
    order = shuffled([3, 5, 8], 7, seed=0)
    assert sorted(order[:3]) == sorted(order[3:6]) == [3, 5, 8] and len(order) == 7
    assert order == shuffled([3, 5, 8], 7, seed=0)


def test_inputs_are_rounded_as_the_packed_layer_rounds_them():
    model, x = nn.ModuleDict({"a": nn.Linear(32, 4), "b": nn.Linear(32, 4)}), torch.randn(2, 32)
    plain = model["b"](x)
    with round_inputs(model, roundings({"a": "int8", "b": "float"})):
        assert not torch.equal(model["a"](x), nn.functional.linear(x, model["a"].weight, model["a"].bias))
        assert torch.equal(model["b"](x), plain)


def test_what_recipes_say():
    chosen = read_recipe(recipe("int4:g32", 1.0, 5))
    assert chosen.needs_calibration and chosen.needs_dense_stream and chosen.looking == "reconstruct"
    assert not read_recipe({}).needs_dense_stream
    with pytest.raises(ValueError, match="reconstruct looks at calibration inputs: give a tokenizer"):
        compress_model(tiny.make("llama"), recipe("int4:g32", 1.0, 5))
    with pytest.raises(RecipeError, match=r"weights.reconstruct: .* greater than or equal to 0"):
        read_recipe({"weights": {"reconstruct": -1}})
    with pytest.raises(RecipeError, match=r"heal looks at calibration inputs, and calibration.sequences is 0"):
        read_recipe({"weights": {"heal": 5}, "calibration": {"sequences": 0}})
