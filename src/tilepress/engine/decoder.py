"""What a decoder model computes, as data. A runner computes from it alone and knows no family by name.

Fields are called as in transformers' configs where these have a word for them, else as in llama.cpp.
"""

from dataclasses import dataclass
from typing import Literal

from .rotary import Rotary

Layout = Literal["separate", "stacked", "interleaved"]


@dataclass(frozen=True)
class Norm:
    """x / √(mean(x²) + rms_norm_eps) · (weight + weight_offset) over the last axis, in float32."""

    rms_norm_eps: float
    weight_offset: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "rms_norm_eps")


@dataclass(frozen=True)
class Attention:
    """softmax(scaling · q kᵀ) v, of the tokens that a token sees: those before it and itself.

    head_dim: channels of a head. scaling: what scores are multiplied by.
    rotary: None where positions count for nothing ("NoPE").
    sliding_window: tokens that are seen, the own one included; None is all.
    attn_logit_softcapping: scores s become c · tanh(s / c).
    qk_norm: queries and keys are normed after projection, each head or all heads as one vector.
    sinks: each query head has one more score in its softmax, a parameter, which stands for no value.
    qkv: one projection each, or one that gives queries, keys and values in this order.
    attention_bias: of queries, keys and values. o_bias: of the output.
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    scaling: float
    rotary: Rotary | None
    sliding_window: int | None = None
    attn_logit_softcapping: float | None = None
    qk_norm: Literal["head", "projection"] | None = None
    sinks: bool = False
    qkv: Layout = "separate"
    attention_bias: bool = False
    o_bias: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "num_attention_heads", "num_key_value_heads", "head_dim")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads, {self.num_attention_heads}, is no multiple of num_key_value_heads, "
                f"{self.num_key_value_heads}"
            )
        if self.rotary is not None and self.rotary.rotary_dim > self.head_dim:
            raise ValueError(f"{self.rotary.rotary_dim} rotary channels are more than head_dim, {self.head_dim}")
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ValueError(f"sliding_window is a number of tokens, not {self.sliding_window}")
        check_positive(self, "attn_logit_softcapping")


@dataclass(frozen=True)
class ClampedSwiglu:
    """(up + 1) · gate · sigmoid(swiglu_alpha · gate), with gate ≤ swiglu_limit and |up| ≤ swiglu_limit before."""

    swiglu_alpha: float
    swiglu_limit: float

    def __post_init__(self) -> None:
        check_positive(self, "swiglu_limit")


Activation = Literal["silu", "gelu_tanh"] | ClampedSwiglu


@dataclass(frozen=True)
class Experts:
    """A router gives each token to `num_experts_per_tok` of `num_experts` feed-forward networks; outputs are summed
    with the softmax of the router's logits as weights.

    norm_topk_prob: the weights of the chosen are divided by their sum.
    router: the name of its module.
    """

    num_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    router: str

    def __post_init__(self) -> None:
        if not 1 <= self.num_experts_per_tok <= self.num_experts:
            raise ValueError(f"num_experts_per_tok, {self.num_experts_per_tok}, is not one of 1 … {self.num_experts}")


@dataclass(frozen=True)
class FeedForward:
    """down(activation(gate(x)) · up(x)); with `experts`, each of them is one.

    gate_up: one projection each, or one that gives all of gate and then all of up, or one channel of each in turn.
    """

    intermediate_size: int
    activation: Activation
    gate_up: Layout = "separate"
    mlp_bias: bool = False
    experts: Experts | None = None

    def __post_init__(self) -> None:
        check_positive(self, "intermediate_size")


@dataclass(frozen=True)
class Block:
    """x + residual_multiplier · attn_post_norm(attention(attn_norm(x))), and of that the same with the feed-forward
    network. Norms are names of modules in the block; None is no norm.

    attends: false of a rank's part of a block (see `ranks`) that has no heads.
    """

    attention: Attention
    mlp: FeedForward
    attn_norm: str | None
    attn_post_norm: str | None
    ffn_norm: str | None
    ffn_post_norm: str | None
    residual_multiplier: float = 1.0
    attends: bool = True


@dataclass(frozen=True)
class Decoder:
    """Embedding, blocks, a norm, and the output layer.

    norm: of this kind are all norms of the model.
    embedding_scale: what the embedding itself multiplies its rows by, in their type, as transformers'
        `*ScaledWordEmbedding` do. embedding_multiplier: what they are multiplied by after that.
    logits_scaling: what logits are divided by. final_logit_softcapping: logits x become c · tanh(x / c), after that.
    tie_word_embeddings: the output layer has the embedding's weights.
    """

    vocab_size: int
    hidden_size: int
    max_position_embeddings: int
    blocks: tuple[Block, ...]
    norm: Norm
    embedding_scale: float = 1.0
    embedding_multiplier: float = 1.0
    logits_scaling: float = 1.0
    final_logit_softcapping: float | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "vocab_size", "hidden_size", "max_position_embeddings", "final_logit_softcapping")
        if not self.blocks:
            raise ValueError("there are no layers")
        if not self.logits_scaling:
            raise ValueError("logits_scaling divides logits, and cannot be 0")


def check_positive(described: object, *names: str) -> None:
    """ValueError if one of its fields is there, is not None, and is no positive number."""
    for name in names:
        value = getattr(described, name, None)
        if value is not None and not value > 0:
            raise ValueError(f"{name} is a positive number, not {value}")
