"""Statistics of layers in both streams, and recipes that use them."""

import pytest
import torch

from tests.models import tiny
from tests.models.test_hidden_states import last_outputs
from tilepress.models import compress_model
from tilepress.models.blocks import linear_layers
from tilepress.models.layer_inputs import statistics_of, turns

WEIGHTS = {"format": "int3:g32", "quantize": "gptq"}


def test_the_drift_between_two_streams():
    layer, tokens = torch.nn.Linear(8, 8), torch.randn(3, 5, 8)
    runs = [lambda x=x: layer(x) for x in tokens]
    dense = [lambda x=x: layer(2 * x) for x in tokens]
    seen = statistics_of({"layer": layer}, runs, hessian=True, drift=True, dense_runs=dense)["layer"]
    torch.testing.assert_close(seen.drift, seen.hessian)  # (2 x - x) xᵀ
    alone = statistics_of({"layer": layer}, runs, hessian=True, drift=True)["layer"]
    assert not alone.drift.any()
    assert statistics_of({"layer": layer}, runs, hessian=True)["layer"].drift is None


@pytest.mark.parametrize("changes", [{}, {"density": 0.5, "prune": "sparsegpt"}], ids=str)
def test_a_dense_target_brings_the_model_nearer_to_the_dense_one(changes):
    tokens = tiny.windows(24)
    ideal, lost = last_outputs(tiny.make("llama"), tokens), {}
    for target in ("layer", "dense"):
        recipe = {"weights": {**WEIGHTS, **changes, "target": target}}
        found = last_outputs(compress_model(tiny.make("llama"), recipe, windows=tokens), tokens)
        lost[target] = float((found - ideal).square().sum())
    assert lost["dense"] < 0.9 * lost["layer"]


def test_the_output_layer_has_two_streams_too():
    recipe = {"weights": {**WEIGHTS, "target": "dense", "lm_head": "compress"}}
    model = compress_model(tiny.make("llama"), recipe, windows=tiny.windows())
    assert "lm_head" in model.config.quantization_config.layers


def test_layers_take_turns_in_the_order_in_which_they_run():
    block, tokens = tiny.make("llama").model.layers[0], torch.randn(1, 5, 64)
    places = torch.arange(5)[None]
    rotary = tiny.make("llama").model.rotary_emb(tokens, places)
    groups = turns(linear_layers(block), lambda: block(tokens, position_embeddings=rotary), set())
    attention, mlp = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj")
    assert groups == [[*attention], ["self_attn.o_proj"], [*mlp], ["mlp.down_proj"]]


def test_experts_of_one_kind_take_one_turn():
    names = [f"experts.{number}.{part}" for number in range(3) for part in ("up", "down")]
    layers = {name: torch.nn.Linear(4, 4) for name in names}

    def run():  # the last expert is not chosen
        for name in names[:4]:
            layers[name](torch.randn(2, 4))

    groups = turns(layers, run, set(names))
    assert groups == [[f"experts.{number}.{part}" for number in range(3)] for part in ("up", "down")]
    assert turns(layers, run, set())[:4] == [[name] for name in names[:4]]
