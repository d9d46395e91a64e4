"""Packed caches of models that keep more than keys and values, and of those that cannot have any."""

import pytest
import torch
import transformers as t
from tests.models import mixtures, tiny

import tilepress

HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def lfm2():
    layers = ["conv", "full_attention"]
    return t.Lfm2ForCausalLM(t.Lfm2Config(**{**mixtures.SMALL, **HEADS}, layer_types=layers))


def qwen3_next():
    sizes = {**tiny.GATED, **LINEAR, **EXPERTS, "num_hidden_layers": 2, "head_dim": 32}
    layers = ["linear_attention", "full_attention"]
    config = t.Qwen3NextConfig(**sizes, shared_expert_intermediate_size=32, layer_types=layers)
    return t.Qwen3NextForCausalLM(config)


def made(make):
    torch.manual_seed(0)
    return make().eval()


@pytest.mark.parametrize("make", [lfm2, qwen3_next])
@pytest.mark.parametrize("format", ["bfp8", "fp16"])
def test_attention_layers_of_hybrid_models_are_packed(make, format):
    model, tokens = made(make), tiny.windows(1, 40)
    with torch.no_grad():
        expected = model(tokens).logits
        cache = tilepress.kv_cache(model, format)
        kinds = [type(layer).__name__ for layer in cache.layers]
        assert kinds == ["LinearAttentionLayer", "LayerKvCache" if format == "bfp8" else "HalfLayerKvCache"]
        parts = [model(part, past_key_values=cache, use_cache=True).logits for part in tokens.split([30, 10], 1)]
    assert (torch.cat(parts, 1) - expected).norm() < 0.05 * expected.norm()
    states = cache.layers[0]
    held = [*states.conv_states.values(), *states.recurrent_states.values()]
    assert cache.nbytes == cache.layers[1].nbytes + sum(state.nbytes for state in held if state is not None)


def test_a_hybrid_cache_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="caches of models with states beside keys and values cannot be saved"):
        tilepress.kv_cache(made(lfm2), "bfp8").save(tmp_path / "cache")


def gptj():
    sizes = {"vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 2, "rotary_dim": 8, "n_positions": 64}
    return t.GPTJForCausalLM(t.GPTJConfig(**sizes))


def falcon_h1():
    sizes = {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1}
    return t.FalconH1ForCausalLM(t.FalconH1Config(**mixtures.SMALL, **sizes))


REFUSED = {
    "gptj": (gptj, "GPTJForCausalLM has attention of its own code, which knows no packed caches: take fp16 or bf16"),
    "deepseek_v3": (
        lambda: mixtures.make("deepseek_v3"),
        "DeepseekV3ForCausalLM caches latent vectors instead of keys and values: take fp16 or bf16",
    ),
    "falcon_h1": (falcon_h1, "has caches that cannot be packed: LinearAttentionAndFullAttentionLayer"),
}


@pytest.mark.parametrize("family", REFUSED)
def test_others_are_refused_before_anything_runs(family):
    make, why = REFUSED[family]
    with pytest.raises(ValueError, match=why):
        tilepress.kv_cache(made(make), "bfp8")
