"""Which families of models are known, and a Hugging Face config read into a description.

A family is a row of `FAMILIES`: what transformers' code of it does that a config does not say. The rest is read from
the config, with the same code for all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .decoder import (
    Activation,
    Attention,
    Block,
    ClampedSwiglu,
    Decoder,
    Experts,
    FeedForward,
    Layout,
    Norm,
    check_positive,
)
from .rotary import Rotary, read_rotary

__all__ = ["FAMILIES", "Block", "Decoder", "Family", "describe"]

# Names of a block's norms: before attention, after it, before the feed-forward network, after it.
PRE_NORM = ("input_layernorm", None, "post_attention_layernorm", None)
POST_NORM = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")
BOTH_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
NO_BIAS = (False, False, False)
ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
GPT_OSS_SWIGLU = ClampedSwiglu(1.702, 7.0)  # of configs that do not say, as those of some versions of transformers
_DIVISORS = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "query_pre_attn_scalar",
    "decoder_sparse_step",
    "max_position_embeddings",
)  # those that a config may have
SLIDING, FULL = "sliding_attention", "full_attention"


def _by_head_dim(config: Any) -> float:
    return float(_head_dim(config) ** -0.5)


def _by_query_scalar(config: Any) -> float:
    return float(config.query_pre_attn_scalar**-0.5)


def _by_multiplier(config: Any) -> float:
    return float(config.attention_multiplier)


@dataclass(frozen=True)
class Family:
    """What a family's configs do not say. Fields that are not named here are those of the description.

    norms: see `PRE_NORM`. weight_offset: of norms.
    biases: whether q, k and v have any, o, and the feed-forward network; or the config's field that says so.
    windows: no layer's attention has one, all have, or those that `layer_types` says.
    rope_by_layer_type: `rope_parameters` are two, for full and for sliding attention.
    partial_rotary: whether partial_rotary_factor counts. no_rope_layers: whether that does.
    hidden_act: the config's field with the activation. clamped_swiglu: it is `ClampedSwiglu` of that.
    router: the name of the router in the feed-forward network, in families with experts.
    norm_topk_prob: None if the config says it. scaling: read from the config.
    attn_logit_softcapping, final_logit_softcapping: whether the config's fields of these names count.
    scaled_embedding: the embedding multiplies by the root of hidden_size. multipliers: the config has Granite's.
    """

    norms: tuple[str | None, str | None, str | None, str | None] = PRE_NORM
    weight_offset: float = 0.0
    qkv: Layout = "separate"
    gate_up: Layout = "separate"
    biases: tuple[bool | str, bool | str, bool | str] = ("attention_bias", "attention_bias", False)
    qk_norm: Literal["head", "projection"] | None = None
    windows: Literal["none", "all", "layer_types"] = "none"
    scaling: Callable[[Any], float] = _by_head_dim
    sinks: bool = False
    rope_by_layer_type: bool = False
    partial_rotary: bool = False
    no_rope_layers: bool = False
    hidden_act: str = "hidden_act"
    clamped_swiglu: bool = False
    router: str | None = None
    norm_topk_prob: bool | None = None
    attn_logit_softcapping: bool = False
    final_logit_softcapping: bool = False
    scaled_embedding: bool = False
    multipliers: bool = False


_WITH_MLP_BIAS = ("attention_bias", "attention_bias", "mlp_bias")

FAMILIES = {
    "gemma2": Family(
        norms=BOTH_NORMS,
        weight_offset=1.0,
        windows="layer_types",
        scaling=_by_query_scalar,
        hidden_act="hidden_activation",
        attn_logit_softcapping=True,
        final_logit_softcapping=True,
        scaled_embedding=True,
    ),
    "gemma3_text": Family(  # transformers computes it without the soft cap of attention, whatever its configs say
        norms=BOTH_NORMS,
        weight_offset=1.0,
        qk_norm="head",
        windows="layer_types",
        scaling=_by_query_scalar,
        rope_by_layer_type=True,
        hidden_act="hidden_activation",
        final_logit_softcapping=True,
        scaled_embedding=True,
    ),
    "gpt_oss": Family(
        gate_up="interleaved",
        biases=("attention_bias", "attention_bias", True),
        windows="layer_types",
        sinks=True,
        clamped_swiglu=True,
        router="router",
        norm_topk_prob=True,
    ),
    "granite": Family(biases=_WITH_MLP_BIAS, scaling=_by_multiplier, multipliers=True),
    "llama": Family(biases=_WITH_MLP_BIAS),
    "mistral": Family(biases=NO_BIAS, windows="all"),
    "mixtral": Family(biases=NO_BIAS, windows="all", gate_up="stacked", router="gate", norm_topk_prob=True),
    "olmo2": Family(norms=POST_NORM, qk_norm="projection"),
    "phi3": Family(qkv="stacked", gate_up="stacked", biases=NO_BIAS, windows="all", partial_rotary=True),
    "qwen2": Family(biases=(True, False, False), windows="layer_types"),
    "qwen3": Family(qk_norm="head", windows="layer_types"),
    "qwen3_moe": Family(qk_norm="head", windows="all", gate_up="stacked", router="gate"),
    "smollm3": Family(biases=_WITH_MLP_BIAS, windows="layer_types", no_rope_layers=True),
}


def describe(config: Any) -> Decoder:
    """What a model with this config of transformers' computes; ValueError for a family that is not known, and for a
    config that contradicts itself."""
    kind = getattr(config, "model_type", None)
    if kind not in FAMILIES:
        raise ValueError(
            f"models of type {kind!r} have no description, and must run by their own modules; those that have one: "
            f"{', '.join(FAMILIES)}"
        )
    try:
        return _decoder(FAMILIES[kind], config)
    except ValueError as error:
        raise ValueError(f"the config of this {kind} model cannot be computed: {error}") from None


def _decoder(family: Family, config: Any) -> Decoder:
    check_positive(config, *_DIVISORS)
    if getattr(config, "use_bidirectional_attention", False):
        raise ValueError("use_bidirectional_attention: tokens would see those after them")
    return Decoder(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        max_position_embeddings=config.max_position_embeddings,
        blocks=tuple(_block(family, config, layer) for layer in range(config.num_hidden_layers)),
        norm=Norm(config.rms_norm_eps, family.weight_offset),
        embedding_scale=config.hidden_size**0.5 if family.scaled_embedding else 1.0,
        embedding_multiplier=config.embedding_multiplier if family.multipliers else 1.0,
        logits_scaling=config.logits_scaling if family.multipliers else 1.0,
        final_logit_softcapping=config.final_logit_softcapping if family.final_logit_softcapping else None,
        tie_word_embeddings=bool(config.tie_word_embeddings),
    )


def _block(family: Family, config: Any, layer: int) -> Block:
    residual = config.residual_multiplier if family.multipliers else 1.0
    return Block(_attention(family, config, layer), _feed_forward(family, config, layer), *family.norms, residual)


def _attention(family: Family, config: Any, layer: int) -> Attention:
    layer_type = _layer_type(family, config, layer)
    return Attention(
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=_head_dim(config),
        scaling=family.scaling(config),
        rotary=_rotary(family, config, layer, layer_type),
        sliding_window=config.sliding_window if layer_type == SLIDING else None,
        attn_logit_softcapping=config.attn_logit_softcapping if family.attn_logit_softcapping else None,
        qk_norm=family.qk_norm,
        sinks=family.sinks,
        qkv=family.qkv,
        attention_bias=_flag(config, family.biases[0]),
        o_bias=_flag(config, family.biases[1]),
    )


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _flag(config: Any, value: bool | str) -> bool:
    return bool(getattr(config, value)) if isinstance(value, str) else value


def _layer_type(family: Family, config: Any, layer: int) -> str:
    if family.windows == "none":
        return FULL
    if family.windows == "all":
        return FULL if config.sliding_window is None else SLIDING
    kind = str(_of_layer(config, "layer_types", layer))
    if kind not in (SLIDING, FULL):
        raise ValueError(f"layer_types has {kind!r}; {SLIDING!r} and {FULL!r} are known")
    if kind == SLIDING and (config.sliding_window is None or not getattr(config, "use_sliding_window", True)):
        raise ValueError(f"layer {layer} has {SLIDING!r}, but there is no sliding_window")
    return kind


def _of_layer(config: Any, field: str, layer: int) -> Any:
    values = getattr(config, field)
    if len(values) != config.num_hidden_layers:
        raise ValueError(f"{field} has {len(values)} entries for {config.num_hidden_layers} layers")
    return values[layer]


def _rotary(family: Family, config: Any, layer: int, layer_type: str) -> Rotary | None:
    if family.no_rope_layers and not _of_layer(config, "no_rope_layers", layer):
        return None
    rotary = read_rotary(
        _rope_parameters(family, config, layer_type), _head_dim(config), config.max_position_embeddings
    )
    if not family.partial_rotary and rotary.rotary_dim != _head_dim(config):
        raise ValueError("partial_rotary_factor: models of this type rotate all channels")
    return rotary


def _rope_parameters(family: Family, config: Any, layer_type: str) -> Any:
    parameters = config.rope_parameters
    if family.rope_by_layer_type:
        parameters = (parameters or {}).get(layer_type)
    if not parameters:
        raise ValueError("there are no rope_parameters" + f" of {layer_type!r}" * family.rope_by_layer_type)
    return parameters


def _feed_forward(family: Family, config: Any, layer: int) -> FeedForward:
    if not _has_experts(family, config, layer):
        layout: Layout = "separate" if family.router else family.gate_up
        return FeedForward(
            config.intermediate_size, _activation(family, config), layout, _flag(config, family.biases[2])
        )
    size = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    bias = _flag(config, family.biases[2])
    return FeedForward(size, _activation(family, config), family.gate_up, bias, _experts(family, config))


def _has_experts(family: Family, config: Any, layer: int) -> bool:
    """All layers of families with experts have them, but for those that Qwen3-MoE's configs leave out."""
    if family.router is None or layer in getattr(config, "mlp_only_layers", ()):
        return False
    return bool((layer + 1) % getattr(config, "decoder_sparse_step", 1) == 0)


def _experts(family: Family, config: Any) -> Experts:
    assert family.router is not None
    normed = config.norm_topk_prob if family.norm_topk_prob is None else family.norm_topk_prob
    number = getattr(config, "num_local_experts", None) or config.num_experts
    return Experts(number, config.num_experts_per_tok, bool(normed), family.router)


def _activation(family: Family, config: Any) -> Activation:
    name = getattr(config, family.hidden_act)
    if name not in ACTIVATIONS:
        raise ValueError(f"{family.hidden_act} {name!r} is not known; {', '.join(ACTIVATIONS)} are")
    if family.clamped_swiglu:
        names = ("swiglu_alpha", "swiglu_limit")
        return ClampedSwiglu(*(getattr(config, name, getattr(GPT_OSS_SWIGLU, name)) for name in names))
    return ACTIVATIONS[name]
