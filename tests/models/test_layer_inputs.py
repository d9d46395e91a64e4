"""Statistics of layers in both streams, and recipes that use them."""

import pytest
import torch

from tests.models import tiny
from tests.models.test_hidden_states import last_outputs
from tilepress.models import compress_model
from tilepress.models.layer_inputs import statistics_of

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
    assert lost["dense"] < 0.97 * lost["layer"]


def test_the_output_layer_has_two_streams_too():
    recipe = {"weights": {**WEIGHTS, "target": "dense", "lm_head": "compress"}}
    model = compress_model(tiny.make("llama"), recipe, windows=tiny.windows())
    assert "lm_head" in model.config.quantization_config.layers
