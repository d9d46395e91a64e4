"""What one rank has of a model: modules like the model's own, with some rows or columns of each linear layer.

Layers whose outputs are heads or channels are cut by rows, those that take them by columns: the sums over all ranks of
what these give are what the whole layer gives. Their bias is rank 0's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...nn import PackedEmbedding, PackedExperts, PackedLinear
from ...tiles.cut import Range, cut_cols, cut_rows
from ..decoder import Attention, Block, Decoder, FeedForward
from ..reference_block import EXPERT_LAYERS, ExpertParts, part
from .shares import BlockShares, Shares


@dataclass
class PartModel:
    """As much of a model of transformers as a `NativeModel` asks for."""

    embedding: nn.Module
    output: nn.Module
    body: Any

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.output

    def get_decoder(self) -> Any:
        return self.body


class PartExperts(PackedExperts):
    """Both projections of each expert."""

    def __init__(self, ups: Sequence[nn.Module], downs: Sequence[nn.Module]) -> None:
        nn.Module.__init__(self)
        self.up_name, self.count = EXPERT_LAYERS[0], len(ups)
        for number, layers in enumerate(zip(ups, downs, strict=True)):
            self.add_module(str(number), nn.ModuleDict(dict(zip(EXPERT_LAYERS, layers, strict=True))))


def part_decoder(decoder: Decoder, shares: Shares, rank: int) -> Decoder:
    """What a rank computes, before sums over all."""
    blocks = zip(decoder.blocks, shares.blocks, strict=True)
    return replace(decoder, blocks=tuple(_part_block(block, own, rank) for block, own in blocks))


def cut_ends(model: Any, decoder: Decoder, shares: Shares, rank: int) -> PartModel:
    """Embedding, output and last norm; the layers are to be added to its body."""
    rows = (shares.tokens[rank], shares.tokens[rank + 1])
    given, output = model.get_input_embeddings(), model.get_output_embeddings()
    body: Any = nn.Module()
    body.norm = _norm(model.get_decoder(), "norm")
    body.layers = nn.ModuleList()
    if isinstance(given, PackedEmbedding):
        matrix = cut_rows(given._whole(), rows)
        embedding: nn.Module = PackedEmbedding(matrix, given.dtype)
        if isinstance(output, PackedLinear) and output._whole() is given._whole():
            bias = None if output.bias is None else output.bias[slice(*rows)]
            return PartModel(embedding, PackedLinear(matrix, bias, output.activations), body)
        return PartModel(embedding, _rows(output, rows), body)
    weight = _frozen(given.weight[slice(*rows)])
    last = _rows(output, rows)
    if decoder.tie_word_embeddings and isinstance(output, nn.Linear):
        last.weight = weight
    table = nn.Embedding(weight.shape[0], weight.shape[1], device="meta")
    table.weight = weight
    return PartModel(table, last, body)


def cut_block(block: Block, module: nn.Module, shares: BlockShares, rank: int) -> nn.Module:
    """One layer of the body."""
    cut = nn.Module()
    for name in (block.attn_norm, block.attn_post_norm, block.ffn_norm, block.ffn_post_norm):
        if name is not None:
            cut.add_module(name, _norm(module, name))
    heads, channels = _range(shares.heads, rank), _range(shares.channels, rank)
    cut.add_module("self_attn", _attention(block.attention, part(module, "self_attn"), heads, rank))
    cut.add_module("mlp", _feed_forward(block.mlp, part(module, "mlp"), channels, rank))
    return cut


def _range(bounds: Sequence[int], rank: int) -> Range:
    return bounds[rank], bounds[rank + 1]


def _part_block(block: Block, shares: BlockShares, rank: int) -> Block:
    (first_head, head), (first, end) = _range(shares.heads, rank), _range(shares.channels, rank)
    mlp = replace(block.mlp, intermediate_size=end - first)
    if head == first_head:
        return replace(block, mlp=mlp, attends=False)
    own = block.attention
    shared = own.num_attention_heads // own.num_key_value_heads
    count = head - first_head
    attention = replace(own, num_attention_heads=count * shared, num_key_value_heads=count)
    return replace(block, attention=attention, mlp=mlp)


def _attention(attention: Attention, module: Any, heads: Range, rank: int) -> Any:
    cut: Any = nn.Module()
    if heads[0] == heads[1]:
        return cut
    shared = attention.num_attention_heads // attention.num_key_value_heads
    dim, all_queries = attention.head_dim, attention.num_attention_heads * attention.head_dim
    keys = (heads[0] * dim, heads[1] * dim)
    queries = (keys[0] * shared, keys[1] * shared)
    if attention.qkv == "stacked":
        starts = (all_queries, all_queries + attention.num_key_value_heads * dim)
        stacked = [(start + keys[0], start + keys[1]) for start in starts]
        cut.qkv_proj = _rows(part(module, "qkv_proj"), queries, *stacked)
    else:
        for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            cut.add_module(name, _rows(part(module, name), rows))
    cut.o_proj = _cols(part(module, "o_proj"), queries, rank)
    if attention.qk_norm is not None:
        cut.q_norm, cut.k_norm = _norm(module, "q_norm"), _norm(module, "k_norm")
    if attention.sinks:
        cut.sinks = _frozen(module.sinks[heads[0] * shared : heads[1] * shared])
    return cut


def _feed_forward(mlp: FeedForward, module: Any, channels: Range, rank: int) -> Any:
    cut: Any = nn.Module()
    if mlp.experts is not None:
        own = ExpertParts(mlp.experts, module)
        ups = [_rows(up, *_gate_up(mlp, channels)) for up in own.ups]
        cut.add_module(mlp.experts.router, _linear(own.router.weight, getattr(own.router, "bias", None)))
        cut.experts = PartExperts(ups, [_cols(down, channels, rank) for down in own.downs])
        return cut
    names = ["gate_proj", "up_proj"] if mlp.gate_up == "separate" else ["gate_up_proj"]
    for name in names:
        cut.add_module(name, _rows(part(module, name), *_gate_up(mlp, channels)))
    cut.down_proj = _cols(part(module, "down_proj"), channels, rank)
    return cut


def _gate_up(mlp: FeedForward, channels: Range) -> list[Range]:
    """Rows of a projection that gives these channels."""
    first, end = channels
    if mlp.gate_up == "interleaved":
        return [(2 * first, 2 * end)]
    size = mlp.intermediate_size
    return [channels] if mlp.gate_up == "separate" else [channels, (size + first, size + end)]


def _rows(layer: Any, *ranges: Range) -> Any:
    bias = None if layer.bias is None else torch.cat([layer.bias[first:end] for first, end in ranges])
    if isinstance(layer, PackedLinear):
        return PackedLinear(cut_rows(layer._whole(), *ranges), bias, layer.activations)
    return _linear(torch.cat([layer.weight[first:end] for first, end in ranges]), bias)


def _cols(layer: Any, cols: Range, rank: int) -> Any:
    bias = layer.bias if rank == 0 else None
    if isinstance(layer, PackedLinear):
        return PackedLinear(cut_cols(layer._whole(), *cols), bias, layer.activations)
    return _linear(layer.weight[:, slice(*cols)], bias)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = _frozen(weight)
    if bias is not None:
        layer.bias = _frozen(bias)
    return layer


def _norm(module: nn.Module, name: str) -> Any:
    """Its weights, under the same name."""
    norm: Any = nn.Module()
    norm.weight = _frozen(part(module, name).weight)
    return norm


def _frozen(values: Tensor) -> nn.Parameter:
    """A copy, without what it is a part of."""
    return nn.Parameter(values.detach().clone().contiguous(), requires_grad=False)
