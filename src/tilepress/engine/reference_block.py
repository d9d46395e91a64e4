"""One block of a decoder, plainly: attention over pages, and feed-forward networks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.attention_reference import Softmax
from ..nn import PackedExperts
from ..nn.attention_functions import attend_plainly, seen_by
from .batch import Chunk
from .decoder import Activation, Attention, Block, ClampedSwiglu, Experts, FeedForward, Layout, Norm

Linear = Callable[[Tensor], Tensor]
EXPERT_LAYERS = ("gate_up_proj", "down_proj")


class Step:
    """Where the new tokens of all chunks are.

    positions: [tokens] in their sequences. pages, slots: [tokens] pages that take their keys and values, and places in
    these. rows: each chunk's among the tokens.
    """

    def __init__(self, chunks: Sequence[Chunk], page_tokens: int) -> None:
        self.chunks = chunks
        positions = [torch.arange(chunk.start, chunk.start + len(chunk.tokens)) for chunk in chunks]
        pages = [torch.tensor(chunk.pages)[own // page_tokens] for chunk, own in zip(chunks, positions, strict=True)]
        self.positions, self.pages = torch.cat(positions), torch.cat(pages)
        self.slots = self.positions % page_tokens
        self.rows = torch.arange(len(self.positions)).split([len(chunk.tokens) for chunk in chunks])


class ReferenceBlock:
    """A block of a model.

    Args:
        block: what to compute.
        norm: the kind of all norms.
        module: has the parts, by the names that transformers gives them; ValueError if it lacks one.
        longest: tokens of a sequence at most.
    """

    def __init__(self, block: Block, norm: Norm, module: nn.Module, longest: int) -> None:
        self.block, self.norm = block, norm
        names = (block.attn_norm, block.attn_post_norm, block.ffn_norm, block.ffn_post_norm)
        self.norms = {name: part(module, name).weight for name in names if name is not None}
        self.attention = ReferenceAttention(block.attention, norm, part(module, "self_attn"), longest)
        self.feed_forward = _feed_forward(block.mlp, part(module, "mlp"))

    def __call__(self, x: Tensor, step: Step, pages: Tensor) -> Tensor:
        """x [tokens, hidden]. Keys and values of the tokens are put into `pages`."""
        block = self.block
        y = self.attention(self._normed(x, block.attn_norm), step, pages)
        x = x + self._normed(y, block.attn_post_norm) * block.residual_multiplier
        y = self.feed_forward(self._normed(x, block.ffn_norm))
        return x + self._normed(y, block.ffn_post_norm) * block.residual_multiplier

    def _normed(self, x: Tensor, name: str | None) -> Tensor:
        return x if name is None else rms_norm(x, self.norms[name], self.norm)


class ReferenceAttention:
    """A block's attention, over keys and values in pages. Arguments as for the block."""

    def __init__(self, attention: Attention, norm: Norm, module: Any, longest: int) -> None:
        self.attention, self.norm = attention, norm
        names = ["qkv_proj"] if attention.qkv == "stacked" else ["q_proj", "k_proj", "v_proj"]
        self.projections = [part(module, name) for name in names]
        self.output = part(module, "o_proj")
        self.qk_norms = [part(module, name).weight for name in ("q_norm", "k_norm")] if attention.qk_norm else []
        self.softmax = Softmax(attention.attn_logit_softcapping, module.sinks if attention.sinks else None)
        self.frequencies = None if attention.rotary is None else attention.rotary.frequencies(longest)

    def empty_pages(self, pages: int, page_tokens: int) -> Tensor:
        """float32 [pages, page_tokens, keys and values, heads, head_dim]."""
        shape = (pages, page_tokens, 2, self.attention.num_key_value_heads, self.attention.head_dim)
        return torch.empty(shape, dtype=torch.float32)

    def __call__(self, x: Tensor, step: Step, pages: Tensor) -> Tensor:
        """x [tokens, hidden]."""
        query, key, value = self._projected(x)
        query, key = (self._rotated(heads, step) for heads in self._qk_normed(query, key))
        pages[step.pages, step.slots] = torch.stack([key.float(), value.float()], 1)
        y = [self._attend(query[rows], chunk, pages) for rows, chunk in zip(step.rows, step.chunks, strict=True)]
        out: Tensor = self.output(torch.cat(y).to(x.dtype))
        return out

    def _projected(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values [tokens, heads, head_dim] each."""
        attention = self.attention
        heads = [attention.num_attention_heads, attention.num_key_value_heads, attention.num_key_value_heads]
        joined = torch.cat([layer(x) for layer in self.projections], -1)
        return [
            y.unflatten(1, (-1, attention.head_dim)) for y in joined.split([n * attention.head_dim for n in heads], -1)
        ]

    def _qk_normed(self, query: Tensor, key: Tensor) -> list[Tensor]:
        if self.attention.qk_norm is None:
            return [query, key]
        of_head = self.attention.qk_norm == "head"
        return [
            rms_norm(x if of_head else x.flatten(1), weight, self.norm).view_as(x)
            for x, weight in zip((query, key), self.qk_norms, strict=True)
        ]

    def _rotated(self, x: Tensor, step: Step) -> Tensor:
        rotary = self.attention.rotary
        if rotary is None or self.frequencies is None:
            return x
        return rotary.rotate(x, step.positions, self.frequencies)

    def _attend(self, query: Tensor, chunk: Chunk, pages: Tensor) -> Tensor:
        """query [new tokens, heads, head_dim] of a chunk, over all tokens of its sequence: [new tokens, channels]."""
        end = chunk.start + len(chunk.tokens)
        key, value = pages[list(chunk.pages)].flatten(0, 1)[:end].unbind(1)
        seen = seen_by(torch.arange(chunk.start, end), end, self.attention.sliding_window)
        query, key, value = (heads.float().transpose(0, 1)[None] for heads in (query, key, value))
        y = attend_plainly(query, key, value, seen, self.attention.scaling, self.softmax)
        return y[0].transpose(0, 1).flatten(1)


def rms_norm(x: Tensor, weight: Tensor, norm: Norm) -> Tensor:
    """Over the last axis, computed in float32, of x's type."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm.rms_norm_eps)
    return (wide * scale * (weight.float() + norm.weight_offset)).to(x.dtype)


def part(module: nn.Module, name: str) -> Any:
    """The module `name` in a block; ValueError where the model is not what its description says."""
    try:
        return module.get_submodule(name)
    except AttributeError:
        raise ValueError(f"{type(module).__name__} has no {name}, which its description says it has") from None


def _feed_forward(mlp: FeedForward, module: nn.Module) -> Linear:
    if mlp.experts is not None:
        return partial(_mixture, mlp=mlp, experts=mlp.experts, parts=ExpertParts(mlp.experts, module))
    names = ("gate_proj", "up_proj") if mlp.gate_up == "separate" else ("gate_up_proj",)
    ups = [part(module, name) for name in names]
    return partial(_gated, mlp=mlp, ups=ups, down=part(module, "down_proj"))


def _gated(x: Tensor, mlp: FeedForward, ups: Sequence[Linear], down: Linear) -> Tensor:
    """x [tokens, inputs] through one network; `ups` are the gate and up projections, or the one that is both."""
    gate, up = split([layer(x) for layer in ups], mlp.gate_up)
    return down(activated(gate, up, mlp.activation))


def split(projected: Sequence[Tensor], layout: Layout) -> Sequence[Tensor]:
    """Gate and up, [tokens, intermediate size] each, of what their projections give."""
    if layout == "separate":
        return projected
    (gate_up,) = projected
    return gate_up.chunk(2, -1) if layout == "stacked" else (gate_up[:, ::2], gate_up[:, 1::2])


def activated(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    if isinstance(activation, ClampedSwiglu):
        gate = gate.clamp(max=activation.swiglu_limit)
        up = up.clamp(-activation.swiglu_limit, activation.swiglu_limit)
        return (up + 1) * gate * torch.sigmoid(gate * activation.swiglu_alpha)
    return up * (F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh"))


class ExpertParts:
    """The router of a mixture, and both projections of each expert."""

    def __init__(self, experts: Experts, module: nn.Module) -> None:
        self.router = part(module, experts.router)
        self.ups, self.downs = (expert_layers(part(module, "experts"), name) for name in EXPERT_LAYERS)


def _mixture(x: Tensor, mlp: FeedForward, experts: Experts, parts: ExpertParts) -> Tensor:
    """x [tokens, hidden] through the experts that the router chooses, one after another."""
    weights, chosen = _routed(x, experts, parts.router)
    out = torch.zeros_like(x)
    for number in chosen.unique().tolist():
        rows, places = (chosen == number).nonzero(as_tuple=True)
        y = _gated(x[rows], mlp, [parts.ups[number]], parts.downs[number])
        out[rows] += (y * weights[rows, places, None]).to(x.dtype)
    return out


def _routed(x: Tensor, experts: Experts, router: Any) -> tuple[Tensor, Tensor]:
    """Weights and numbers [tokens, experts per token] of the experts with the largest logits."""
    logits = F.linear(x, router.weight, getattr(router, "bias", None)).float()
    weights, chosen = logits.softmax(-1).topk(experts.num_experts_per_tok)
    return weights / weights.sum(-1, keepdim=True) if experts.norm_topk_prob else weights, chosen


@dataclass(frozen=True)
class ExpertLayer:
    """A projection of an expert, in one parameter with those of others."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def expert_layers(module: Any, name: str) -> list[Any]:
    """The projection `name` of each expert: modules of their own, or an `ExpertLayer` each."""
    if isinstance(module, PackedExperts):
        return module.projections(name)
    weights, biases = getattr(module, name), getattr(module, f"{name}_bias", None)
    if module.is_transposed:
        weights = weights.mT
    return [ExpertLayer(weight, None if biases is None else biases[number]) for number, weight in enumerate(weights)]
