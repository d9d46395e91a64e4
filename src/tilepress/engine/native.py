"""A decoder computed from its description by native code: one call from token ids to logits, whatever the batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import _native
from ..kernels import tuning
from ..kernels.linear import BF16, FLOAT, READS_TENSORS, native_rounding
from ..nn import PackedEmbedding, PackedLinear
from ..tiles import pack
from ..tiles.packing import thread_count
from .batch import Chunk, Runner, check_chunks, check_pages
from .decoder import Attention, Block, ClampedSwiglu, Decoder, Experts, FeedForward
from .family import describe
from .reference_block import ExpertLayer, ExpertParts, part
from .rotary import Rotary

Layer = tuple[Any, ...]  # a linear layer as native code takes it: matrix, bias, and how activations are rounded
_NOTHING = torch.empty(0)
_NO_HEADS: dict[str, Any] = {
    "qkv": [],
    "o": None,
    "q_norm": _NOTHING,
    "k_norm": _NOTHING,
    "sinks": _NOTHING,
    "heads": 0,
    "kv_heads": 0,
}
_FLOATS = {torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True)
class Rank:
    """Which part of a model it is, see `ranks`. tokens: the first one of each rank, and how many there are."""

    number: int
    tokens: tuple[int, ...]
    exchange: _native.Exchange


class NativeModel(Runner):
    """A `Runner` that computes what `ReferenceModel` does, in native code, with `threads` threads, by default as many
    as torch has.

    Hidden states are float32 whatever the model's type; weights of bfloat16 and float16 are packed as they are, and
    layers with weights in bfloat16 may round their activations to it. Where linear layers compute a row the same in
    any batch (integer activations, float32 weights that are not packed, all in batch-invariant mode), a sequence's
    logits are the same bits whatever else a step has, and however its tokens were divided into chunks.

    Weights that are not packed are copied: what is done to the model later has no effect.

    Args:
        model: of a family that `describe` knows.
        page_tokens: tokens in a page: 16, 32, 64 or 128. pages: how many there are.
        longest: tokens of a sequence at most; by default what the config says.
        decoder: what to compute, if not what `describe` says.
        kv: numbers in pages, float32 or bf16; "packed" has none, see `PackedModel`, and "none" is of a rank without
            heads.
        rank: of a part of a model; all ranks compute each step together, and only the first gives logits.

    Raises:
        ValueError: the model is not what its description says, or torch is too old.
    """

    fixed_pages = True
    threads: int | None = None

    def __init__(
        self,
        model: Any,
        page_tokens: int = 32,
        pages: int = 64,
        *,
        longest: int | None = None,
        decoder: Decoder | None = None,
        kv: str = "float32",
        rank: Rank | None = None,
    ) -> None:
        self.decoder = describe(model.config) if decoder is None else decoder
        self.page_tokens, self.pages = page_tokens, pages
        self.vocabulary = self.decoder.vocab_size
        self.longest = self.decoder.max_position_embeddings if longest is None else longest
        if not READS_TENSORS:
            raise ValueError("this torch hands out no functions to read tensors with: use a newer one")
        tuning.load()
        self.kv, self._rank = kv, rank
        self._native = _stepper(model, self, kv)
        self.page_bytes = self._page_bytes()

    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """float32 logits [tokens whose are wanted, vocabulary]; see `Runner`. ValueError, and nothing is changed, if a
        chunk contradicts itself, another one, or this model."""
        return self.compute(chunks, self.places_of(chunks))

    def places_of(self, chunks: Sequence[Chunk]) -> list[Any]:
        """Where native code finds the keys and values of each chunk. ValueError as `run` has it."""
        check_chunks(self, chunks)
        return [chunk.pages for chunk in chunks]

    def compute(self, chunks: Sequence[Chunk], places: Sequence[Any]) -> Tensor:
        """The rest of `run`."""
        gives_logits = self._rank is None or self._rank.number == 0
        logits = torch.empty(sum(chunk.logits for chunk in chunks), self.vocabulary if gives_logits else 0)
        parts = [(one.tokens, one.start, place, one.logits) for one, place in zip(chunks, places, strict=True)]
        self._native.run(parts, logits, thread_count(self.threads))
        return logits

    def _page_bytes(self) -> int:
        return 0 if self.kv == "none" else self._native.page_bytes

    def copy_page(self, source: int, target: int) -> None:
        check_pages(self, (source, target))
        if self.kv != "none":
            self._native.copy_page(source, target)

    def read_page(self, layer: int, page: int) -> Tensor:
        """Keys and values of a layer's page: float32 [heads, keys and values, page_tokens, head_dim]."""
        check_pages(self, (page,))
        attention = self.decoder.blocks[layer].attention
        held = torch.empty(attention.num_key_value_heads, 2, self.page_tokens, attention.head_dim)
        self._native.read_page(layer, page, held)
        return held


def _stepper(model: Any, runner: NativeModel, kv: str) -> _native.Stepper:
    decoder, embedding = runner.decoder, model.get_input_embeddings()
    dtype = embedding.dtype if isinstance(embedding, PackedEmbedding) else embedding.weight.dtype
    parts = _Parts(dtype)
    rotaries = list(dict.fromkeys(block.attention.rotary for block in decoder.blocks if block.attention.rotary))
    body = model.get_decoder()
    blocks = [
        _block(block, decoder, module, rotaries, parts)
        for block, module in zip(decoder.blocks, body.layers, strict=True)
    ]
    scale = torch.tensor(decoder.embedding_scale).to(dtype).item() * decoder.embedding_multiplier
    return _native.Stepper(
        embedding=parts.embedding(embedding),
        blocks=blocks,
        norm=_norm(body, "norm", decoder),
        output=parts.linear(model.get_output_embeddings()),
        rotaries=[_rotary(rotary, runner.longest) for rotary in rotaries],
        longest=runner.longest,
        epsilon=decoder.norm.rms_norm_eps,
        embedding_multiplier=scale,
        logits_scaling=decoder.logits_scaling,
        softcap=decoder.final_logit_softcapping or 0.0,
        kv=kv,
        pages=runner.pages,
        page_tokens=runner.page_tokens,
        tokens=[0, runner.vocabulary] if runner._rank is None else list(runner._rank.tokens),
        exchange=None if runner._rank is None else runner._rank.exchange,
    )


def _rotary(rotary: Rotary, longest: int) -> tuple[list[float], float, bool]:
    return rotary.frequencies(longest).tolist(), rotary.attention_factor, rotary.interleaved


def _block(
    block: Block, decoder: Decoder, module: nn.Module, rotaries: list[Rotary], parts: "_Parts"
) -> _native.StepBlock:
    norms = (block.attn_norm, block.attn_post_norm, block.ffn_norm, block.ffn_post_norm)
    names = ("attn_norm", "attn_post_norm", "ffn_norm", "ffn_post_norm")
    weights: dict[str, Any] = {name: _norm(module, own, decoder) for name, own in zip(names, norms, strict=True)}
    return _native.StepBlock(
        **_attention(block, decoder, part(module, "self_attn"), rotaries, parts),
        **weights,
        **_feed_forward(block.mlp, part(module, "mlp"), parts),
        residual_multiplier=block.residual_multiplier,
    )


def _attention(block: Block, decoder: Decoder, module: Any, rotaries: list[Rotary], parts: "_Parts") -> dict[str, Any]:
    attention = block.attention
    return {
        **(_projections(attention, decoder, module, parts) if block.attends else _NO_HEADS),
        "head_dim": attention.head_dim,
        "scaling": attention.scaling,
        "window": attention.sliding_window or 0,
        "softcap": attention.attn_logit_softcapping or 0.0,
        "rotary": -1 if attention.rotary is None else rotaries.index(attention.rotary),
    }


def _projections(attention: Attention, decoder: Decoder, module: Any, parts: "_Parts") -> dict[str, Any]:
    names = ["qkv_proj"] if attention.qkv == "stacked" else ["q_proj", "k_proj", "v_proj"]
    normed = attention.qk_norm is not None
    return {
        "qkv": [parts.linear(part(module, name)) for name in names],
        "o": parts.linear(part(module, "o_proj")),
        "q_norm": _norm(module, "q_norm" if normed else None, decoder),
        "k_norm": _norm(module, "k_norm" if normed else None, decoder),
        "sinks": _floats(module.sinks) if attention.sinks else _NOTHING,
        "heads": attention.num_attention_heads,
        "kv_heads": attention.num_key_value_heads,
    }


def _feed_forward(mlp: FeedForward, module: nn.Module, parts: "_Parts") -> dict[str, Any]:
    return {
        **(_network(mlp, module, parts) if mlp.experts is None else _experts(mlp.experts, module, parts)),
        **_activation(mlp),
        "interleaved": mlp.gate_up == "interleaved",
    }


def _network(mlp: FeedForward, module: nn.Module, parts: "_Parts") -> dict[str, Any]:
    names = ["gate_proj", "up_proj"] if mlp.gate_up == "separate" else ["gate_up_proj"]
    ups = [parts.linear(part(module, name)) for name in names]
    return {
        "networks": [(ups, parts.linear(part(module, "down_proj")))],
        "router": None,
        "chosen": 0,
        "renormalised": False,
    }


def _experts(experts: Experts, module: nn.Module, parts: "_Parts") -> dict[str, Any]:
    own = ExpertParts(experts, module)
    return {
        "networks": [([parts.linear(up)], parts.linear(down)) for up, down in zip(own.ups, own.downs, strict=True)],
        "router": parts.router(own.router),
        "chosen": experts.num_experts_per_tok,
        "renormalised": experts.norm_topk_prob,
    }


def _activation(mlp: FeedForward) -> dict[str, Any]:
    if isinstance(mlp.activation, ClampedSwiglu):
        own = mlp.activation
        return {"activation": "clamped_swiglu", "alpha": own.swiglu_alpha, "limit": own.swiglu_limit}
    return {"activation": mlp.activation, "alpha": 0.0, "limit": 0.0}


def _norm(module: nn.Module, name: str | None, decoder: Decoder) -> Tensor:
    """The weights of a norm with their offset; none where there is no norm."""
    return _NOTHING if name is None else _floats(part(module, name).weight) + decoder.norm.weight_offset


def _floats(values: Tensor) -> Tensor:
    return values.detach().to(torch.float32, copy=True).contiguous().resolve_neg()


class _Parts:
    """Linear layers and embeddings of a model for native code; weights that two of them share are held once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.rounding = BF16 if dtype == torch.bfloat16 else FLOAT  # of activations that are floats
        self.matrices: dict[int, tuple[Tensor, Any]] = {}  # by id; with what has the id

    def linear(self, module: Any) -> Layer:
        if not isinstance(module, PackedLinear | nn.Linear | ExpertLayer):
            raise ValueError(f"{type(module).__name__} is no linear layer that native code knows")
        bias = None if module.bias is None else _floats(module.bias)
        if not isinstance(module, PackedLinear):
            return (self._matrix(module.weight), bias, 0, self.rounding)
        group, mantissa = native_rounding(module.activations)
        return (module._whole().native, bias, group, self.rounding if mantissa == FLOAT else mantissa)

    def router(self, module: Any) -> Layer:
        """In float32, whatever the model's type: few logits, of which much depends."""
        bias = getattr(module, "bias", None)
        return (_native.PlainMatrix(_floats(module.weight)), None if bias is None else _floats(bias))

    def embedding(self, module: Any) -> Layer:
        matrix = module._whole().native if isinstance(module, PackedEmbedding) else self._matrix(module.weight)
        return (matrix, None, 0, FLOAT)

    def _matrix(self, weight: Tensor) -> Any:
        """Packed as it is; of float32, which has no packed format, a plain copy."""
        if id(weight) not in self.matrices:
            packed = weight.dtype in _FLOATS
            matrix = pack(weight, _FLOATS[weight.dtype]).native if packed else _native.PlainMatrix(_floats(weight))
            self.matrices[id(weight)] = (weight, matrix)
        return self.matrices[id(weight)][1]
