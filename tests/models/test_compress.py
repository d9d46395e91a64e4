"""Compression in memory, on every family, against the model with the same weights unpacked."""

import copy

import pytest
import torch
from torch import nn

import tilepress
from tests.models import tiny
from tilepress import kernels, tiles
from tilepress.compression import WeightPlan, compress_weight
from tilepress.formats import parse_weight
from tilepress.models import Progress, RecipeError, compress_model
from tilepress.models.blocks import find_blocks
from tilepress.models.linear_form import replace_layer
from tilepress.models.registration import packed_layers, unpack_layers
from tilepress.nn import PackedEmbedding, PackedLinear

WANDA = {"weights": {"format": "int4:g32", "density": 0.5, "prune": "wanda", "lm_head": "compress"}}


def unpacked(model):
    """The same model with the weights that the packed ones stand for, in ordinary layers."""
    dense = copy.deepcopy(model)
    for name, layer in list(packed_layers(dense)):
        replace_layer(dense, name, tiny.dense_layer(layer))
    return dense


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits


@pytest.mark.parametrize("format", ["int4:g32", "mxfp4", "bf16"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_computes_with_its_packed_weights(family, format):
    model, tokens = tiny.make(family), tiny.windows()
    before = logits(model, tokens)
    linear = sum(type(module) is nn.Linear for module in model.modules())
    recipe = {"weights": {"format": format, "density": 0.5, "prune": "wanda", "lm_head": "compress"}}
    assert tilepress.compress(model, recipe, windows=tokens) is model
    assert sum(isinstance(module, PackedLinear) for module in model.modules()) == linear
    assert not any(type(module) is nn.Linear for module in model.modules())
    actual, expected = logits(model, tokens), logits(unpacked(model), tokens)
    # Weights are rounded to bf16 on their way into some kernels: kernels.error_bound grants each layer 2^-7.
    assert (actual - expected).norm() <= 3 * 2.0**-7 * expected.norm()
    assert (actual - before).norm() > (actual - expected).norm()


def test_layers_hold_what_part_by_part_compression_gives():
    model = tiny.make("llama")
    weight = model.model.layers[1].mlp.up_proj.weight.detach().clone()
    compress_model(model, {"weights": {"format": "int8:row"}})
    expected = compress_weight(weight, WeightPlan(parse_weight("int8:row")))
    packed = model.model.layers[1].mlp.up_proj.matrix
    assert torch.equal(tiles.unpack_codes(packed)[0].codes, expected.quantized.codes)
    assert model.config.quantization_config.layers["model.layers.1.mlp.up_proj"]["error"] == expected.error


def test_blocks_are_calibrated_by_the_compressed_blocks_before_them(monkeypatch):
    """Against the slow way: each block's inputs taken from the whole model, whose earlier blocks are packed."""
    from tilepress.models import layer as module

    seen = {}
    real = module.compress_weight

    def spy(weight, plan, statistics):
        seen[weight.data_ptr()] = None if statistics is None else statistics.norms
        return real(weight, plan, statistics)

    monkeypatch.setattr(module, "compress_weight", spy)
    model, tokens = tiny.make("qwen2"), tiny.windows()
    layer = model.model.layers[2].mlp.down_proj
    partly, pointer = copy.deepcopy(model), layer.weight.data_ptr()
    compress_model(model, {"weights": {**WANDA["weights"], "lm_head": "keep"}}, windows=tokens)
    for number in (0, 1):
        partly.model.layers[number] = model.model.layers[number]
    inputs = []
    partly.model.layers[2].mlp.down_proj.register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
    for window in tokens:
        logits(partly, window[None])
    expected = torch.cat(inputs).reshape(-1, 128).square().mean(0).sqrt()
    torch.testing.assert_close(seen[pointer], expected, rtol=1e-4, atol=1e-5)


def test_recipes_reach_layers():
    model = tiny.make("llama")
    override = [{"match": "*.down_proj", "format": "int8:row", "density": 1.0}]
    recipe = {"weights": {"density": 0.25, "override": override}, "activations": {"format": "int8"}}
    compress_model(model, recipe)
    layers = dict(packed_layers(model))
    assert {str(layer.matrix.format) for name, layer in layers.items() if "down" in name} == {"int8:row"}
    inside = {name: layer for name, layer in layers.items() if name != "lm_head"}
    assert {layer.matrix.density for name, layer in inside.items() if "down" not in name} == {0.25}
    assert {layer.activations for layer in inside.values()} == {"int8"} and layers["lm_head"].activations == "float"


@pytest.mark.parametrize("lm_head", ["keep", "int8:row"])
def test_a_tied_head_takes_the_embeddings_matrix(lm_head):
    model = tiny.make("llama")
    weight, tokens = model.model.embed_tokens.weight.detach().clone(), tiny.windows()
    compress_model(model, {"weights": {"lm_head": lm_head}})
    table, head = model.model.embed_tokens, model.lm_head
    assert isinstance(table, PackedEmbedding) and head.matrix is table.matrix
    assert str(table.matrix.format) == "int8:row" and torch.allclose(tiles.unpack(table.matrix), weight, atol=0.01)
    dense = unpack_layers(copy.deepcopy(model))
    assert dense.lm_head.weight is dense.model.embed_tokens.weight
    torch.testing.assert_close(logits(model, tokens), logits(dense, tokens), rtol=1e-3, atol=1e-3)


def test_an_embedding_that_nothing_is_tied_to_is_packed_alone():
    model = tiny.make("qwen2")
    compress_model(model, {"weights": {"embedding": "int4:g32", "lm_head": "int8:g32"}})
    assert str(model.model.embed_tokens.matrix.format) == "int4:g32" and str(model.lm_head.matrix.format) == "int8:g32"
    model = tiny.make("qwen2")
    compress_model(model, {})
    assert isinstance(model.model.embed_tokens, PackedEmbedding) and type(model.lm_head) is nn.Linear
    assert model.config.quantization_config.dense == {"lm_head": "weights.lm_head is keep"}


def test_a_tied_head_and_its_embedding_can_stay():
    model = tiny.make("llama")
    compress_model(model, {"weights": {"embedding": "keep"}})
    assert type(model.lm_head) is nn.Linear and model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.quantization_config.dense == {"lm_head": "weights.lm_head is keep"}


def test_an_embedding_that_computes_something_else_stays_and_is_said():
    class Scaled(nn.Embedding):
        pass

    model = tiny.make("qwen2")
    model.model.embed_tokens.__class__ = Scaled
    compress_model(model, {"weights": {"lm_head": "compress"}})
    why = {"model.embed_tokens": "Scaled is no plain lookup of rows"}
    assert model.config.quantization_config.dense == why
    model = tiny.make("llama")
    model.model.embed_tokens.__class__ = Scaled
    compress_model(model, {})
    assert model.lm_head.weight is model.model.embed_tokens.weight and model.config.tie_word_embeddings
    assert model.config.quantization_config.dense == why | {"lm_head": "weights.lm_head is keep"}


def test_a_tied_head_is_untied_when_it_is_compressed():
    model = tiny.make("llama")
    embedding = model.model.embed_tokens.weight.detach().clone()
    compress_model(model, {"weights": {"lm_head": "compress", "embedding": "keep"}})
    assert isinstance(model.lm_head, PackedLinear) and not model.config.tie_word_embeddings
    assert torch.equal(model.model.embed_tokens.weight, embedding)
    assert torch.allclose(tiles.unpack(model.lm_head.matrix), embedding, atol=0.1)


def test_half_precision_models_stay_so_where_they_are_not_packed():
    model = tiny.make("qwen2").to(torch.bfloat16)
    norms = {name: value.clone() for name, value in model.state_dict().items() if "norm" in name}
    compress_model(model, WANDA, windows=tiny.windows())
    assert all(torch.equal(model.state_dict()[name], value) for name, value in norms.items())
    assert model.model.layers[0].self_attn.q_proj.bias.dtype == torch.bfloat16
    assert logits(model, tiny.windows()).dtype == torch.bfloat16


def test_any_module_tree_with_linear_layers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Sequential(nn.Linear(64, 16, bias=False)))
    samples = torch.randn(5, 7, 32)
    weights = {"format": "int8:row", "density": 0.5, "prune": "wanda", "quantize": "gptq"}
    compress_model(model, {"weights": weights}, windows=samples)
    assert [type(module).__name__ for module in (model[0], model[2][0])] == ["PackedLinear", "PackedLinear"]
    assert model(samples).shape == (5, 7, 16)


def test_blocks_are_found_by_what_they_hold():
    assert list(find_blocks(tiny.make("opt"))) == [f"model.decoder.layers.{number}" for number in range(3)]
    assert list(find_blocks(tiny.make("gpt_neox"))) == [f"gpt_neox.layers.{number}" for number in range(3)]
    assert find_blocks(nn.Sequential(nn.Linear(4, 4))) == {}
    assert find_blocks(nn.ModuleDict({"norms": nn.ModuleList([nn.LayerNorm(4)])})) == {}


def test_a_layer_that_no_input_reaches_is_still_compressed():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x):
            return self.used(x)

    model = compress_model(Unused(), {"weights": {"quantize": "gptq"}}, windows=torch.randn(4, 8, 32))
    assert isinstance(model.unused, PackedLinear)


def test_progress_tells_stages_and_the_time_left():
    steps = []
    compress_model(tiny.make("llama"), WANDA, windows=tiny.windows(), progress=steps.append)
    assert [state.done for state in steps] == [0, 1, 2, 3, 4] and {state.total for state in steps} == {4}
    assert steps[0] == Progress(0, 4, None) and steps[-1].seconds_left == 0


def test_what_cannot_be_compressed_is_refused():
    with pytest.raises(ValueError, match=r"Sequential has no nn.Linear layer, so there is nothing to compress"):
        compress_model(nn.Sequential(nn.ReLU()), {})
    head = tiny.make("llama", num_hidden_layers=0)
    with pytest.raises(ValueError, match=r"has no nn.Linear layer but lm_head, which lm_head keep leaves as it is"):
        compress_model(head, {})
    model = compress_model(tiny.make("llama"), {})
    with pytest.raises(ValueError, match="the model is compressed already"):
        compress_model(model, {})
    with pytest.raises(ValueError, match="wanda looks at calibration inputs: give a tokenizer"):
        compress_model(tiny.make("llama"), WANDA)


@pytest.mark.isas
def test_integer_kernels_give_the_same_bits_as_the_function():
    model = compress_model(tiny.make("llama"), {"activations": {"format": "int8"}})
    layer = model.model.layers[0].mlp.gate_proj
    x = torch.randn(2, 3, 64)
    assert torch.equal(layer(x), kernels.linear(x, layer.matrix, activations="int8"))


def test_the_bytes_do_not_depend_on_threads():
    before, results = torch.get_num_threads(), []
    weights = {"format": "int4:g32", "density": 0.5, "prune": "sparsegpt", "quantize": "gptq", "lm_head": "compress"}
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            model = tiny.make("llama", hidden_size=256, intermediate_size=640, num_hidden_layers=1)
            compress_model(model, {"weights": weights}, windows=tiny.windows(4, 48))
            results.append((model.state_dict(), model.config.quantization_config.layers))
    finally:
        torch.set_num_threads(before)
    for state, layers in results[1:]:
        assert layers == results[0][1]
        assert all(torch.equal(array, results[0][0][name]) for name, array in state.items())


class Odd(nn.Linear):
    """No plain linear layer: it may compute something else."""


def test_layers_that_stay_dense_are_said():
    model = tiny.make("llama")
    model.model.layers[1].mlp.up_proj = Odd(64, 128, bias=False)
    model.model.layers[1].mlp.taps = nn.Conv1d(4, 4, 3)
    compress_model(model, {"weights": {"format": "int4:g32"}})
    assert model.config.quantization_config.dense == {
        "model.layers.1.mlp.up_proj": "Odd is not a plain nn.Linear",
        "model.layers.1.mlp.taps": "Conv1d is not a plain nn.Linear",
    }
    model = tiny.make("llama")
    compress_model(model, {"weights": {"format": "int4:g32", "lm_head": "compress"}})
    assert model.config.quantization_config.dense == {}


@pytest.mark.parametrize(
    ("match", "why"),
    [
        (
            "*.down_porj",
            r"fits no layer; did you mean 'model.layers.\*.mlp.down_proj'\? There are model",
        ),
        ("lm_head", 'fits only lm_head, which weights.lm_head "keep" leaves as it is: set it to "compress"'),
    ],
)
def test_an_override_that_fits_no_layer_is_refused(match, why):
    model = tiny.make("llama")
    override = [{"match": "*.up_proj", "density": 0.5}, {"match": match, "density": 0.5}]
    with pytest.raises(RecipeError, match=rf"weights.override\[1\].match: .*{why}"):
        compress_model(model, {"weights": {"override": override}})
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
