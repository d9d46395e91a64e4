"""Configs of Hugging Face read into descriptions, beside the models that transformers makes of them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import transformers as hf
from tests.engine.families import FAMILIES, config, make

from tilepress.engine.decoder import ClampedSwiglu
from tilepress.engine.family import FAMILIES as KNOWN
from tilepress.engine.family import describe
from tilepress.engine.rotary import Llama3


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return make(request.param)


def has_bias(module, *names):
    """Whether all those layers that are there have one; they must agree."""
    layers = [getattr(module, name) for name in names if hasattr(module, name)]
    (only,) = {layer.bias is not None for layer in layers}
    return only


def test_biases_are_those_of_the_modules(model):
    for block, module in zip(describe(model.config).blocks, model.model.layers, strict=True):
        assert block.attention.attention_bias == has_bias(module.self_attn, "q_proj", "k_proj", "v_proj", "qkv_proj")
        assert block.attention.o_bias == has_bias(module.self_attn, "o_proj")
        if block.mlp.experts:
            assert block.mlp.mlp_bias == hasattr(module.mlp.experts, "down_proj_bias")
        else:
            assert block.mlp.mlp_bias == has_bias(module.mlp, "gate_proj", "up_proj", "gate_up_proj", "down_proj")


def test_sizes_are_those_of_the_modules(model):
    decoder = describe(model.config)
    assert tuple(model.get_input_embeddings().weight.shape) == (decoder.vocab_size, decoder.hidden_size)
    for block, module in zip(decoder.blocks, model.model.layers, strict=True):
        assert module.self_attn.o_proj.in_features == block.attention.num_attention_heads * block.attention.head_dim
        if block.mlp.experts:
            down = module.mlp.experts.down_proj
            assert len(down) == block.mlp.experts.num_experts and block.mlp.intermediate_size in down.shape[1:]
        else:
            assert module.mlp.down_proj.in_features == block.mlp.intermediate_size


def test_the_embedding_is_scaled_as_its_module_does(model):
    table = model.get_input_embeddings()
    torch.testing.assert_close(
        table(torch.tensor([5])), table.weight[[5]] * describe(model.config).embedding_scale, rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("tied", [True, False])
def test_tied_outputs(tied):
    own = make("llama", tie_word_embeddings=tied)
    assert describe(own.config).tie_word_embeddings == tied
    assert (own.get_output_embeddings().weight is own.get_input_embeddings().weight) == tied


def test_every_family_is_tested_and_its_own_defaults_are_described():
    names = {name for name, _ in FAMILIES.values()}
    defaults = [getattr(hf, f"{name}{'Text' if name == 'Gemma3' else ''}Config")() for name in names]
    assert {own.model_type for own in defaults} == set(KNOWN)
    for own in defaults:
        assert len(describe(own).blocks) == own.num_hidden_layers


def test_a_published_config():
    """Llama 3.1 8B's."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    own = hf.LlamaConfig(
        vocab_size=128256,
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        rope_scaling=scaling | {"original_max_position_embeddings": 8192},
    )
    block = describe(own).blocks[31]
    assert (block.attention.num_attention_heads, block.attention.num_key_value_heads) == (32, 8)
    assert (block.attention.head_dim, block.attention.scaling) == (128, 128**-0.5)
    assert block.attention.rotary.rope_theta == 500000.0
    assert block.attention.rotary.scaling == Llama3(8.0, 1.0, 4.0, 8192)


def test_gemma3_has_a_window_and_positions_of_its_own_in_five_of_six_layers():
    own = hf.Gemma3TextConfig(num_hidden_layers=12, sliding_window=512)
    blocks = [block.attention for block in describe(own).blocks]
    assert [attention.sliding_window for attention in blocks] == ([512] * 5 + [None]) * 2
    assert [attention.rotary.rope_theta for attention in blocks] == ([1e4] * 5 + [1e6]) * 2


def test_gpt_oss_has_its_own_activation_even_where_configs_do_not_say_so():
    own = config("gpt_oss")
    older = {name: value for name, value in own.to_dict().items() if not name.startswith("swiglu")}
    assert describe(own).blocks[0].mlp.activation == ClampedSwiglu(1.702, 0.5)
    assert describe(SimpleNamespace(**older)).blocks[0].mlp.activation == ClampedSwiglu(1.702, 7.0)


def test_descriptions_are_compared_by_value():
    first, second = describe(config("phi3-longrope")), describe(config("phi3-longrope"))
    assert first == second and hash(first) == hash(second)
    assert replace(first, vocab_size=7) != second


@pytest.mark.parametrize("kind", ["gpt2", "gemma3", "deepseek_v3", "mistral3", None])
def test_other_models_have_no_description(kind):
    own = hf.PretrainedConfig()
    own.model_type = kind
    with pytest.raises(ValueError) as caught:
        describe(own)
    assert str(caught.value) == (
        f"models of type {kind!r} have no description, and must run by their own modules; those that have one: gemma2, "
        "gemma3_text, gpt_oss, granite, llama, mistral, mixtral, olmo2, phi3, qwen2, qwen3, qwen3_moe, smollm3"
    )


CONTRADICTIONS = [
    ("llama", {"num_key_value_heads": 3}, "num_attention_heads, 4, is no multiple of num_key_value_heads, 3"),
    ("llama", {"num_key_value_heads": 0}, "num_key_value_heads is a positive number, not 0"),
    ("llama", {"num_attention_heads": 0, "head_dim": 8}, "num_attention_heads is a positive number, not 0"),
    ("llama", {"hidden_act": "relu"}, "hidden_act 'relu' is not known; silu, swish, gelu_pytorch_tanh are"),
    ("llama", {"head_dim": 7}, "rotary channels are in pairs: 7 of a head cannot be"),
    ("llama", {"vocab_size": 0}, "vocab_size is a positive number, not 0"),
    ("llama", {"num_hidden_layers": 0}, "there are no layers"),
    ("llama", {"rms_norm_eps": -1.0}, "rms_norm_eps is a positive number, not -1.0"),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 0.5}}, "rope_theta is more than 1, not 0.5"),
    (
        "llama",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor: models of this type rotate all channels",
    ),
    ("llama", {"rope_parameters": None}, "there are no rope_parameters"),
    ("mistral", {"sliding_window": 0}, "sliding_window is a number of tokens, not 0"),
    ("qwen2", {"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries for 4 layers"),
    (
        "qwen2",
        {"layer_types": ["chunked_attention"] * 4},
        "layer_types has 'chunked_attention'; 'sliding_attention' and",
    ),
    ("qwen2", {"layer_types": ["sliding_attention"] * 4, "sliding_window": None}, "but there is no sliding_window"),
    ("smollm3", {"layer_types": ["sliding_attention"] * 4, "use_sliding_window": False}, "there is no sliding_window"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers has 1 entries for 4 layers"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention: tokens would see those after them"),
    ("gemma2", {"attn_logit_softcapping": 0.0}, "attn_logit_softcapping is a positive number, not 0.0"),
    ("gemma3", {"final_logit_softcapping": -1.0}, "final_logit_softcapping is a positive number, not -1.0"),
    ("gemma3", {"rope_parameters": {"full_attention": None}}, "there are no rope_parameters of 'sliding_attention'"),
    ("granite", {"logits_scaling": 0.0}, "logits_scaling divides logits, and cannot be 0"),
    ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok, 5, is not one of 1 … 4"),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is a positive number, not 0"),
    ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is a positive number, not 0"),
]


@pytest.mark.parametrize("family, changes, message", CONTRADICTIONS)
def test_contradictions(family, changes, message):
    own = config(family)
    for name, value in changes.items():  # after transformers' own checks, which files pass through as well
        setattr(own, name, value)
    with pytest.raises(ValueError, match=message) as caught:
        describe(own)
    assert str(caught.value).startswith(f"the config of this {own.model_type} model cannot be computed: ")
