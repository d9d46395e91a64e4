"""Attention with queries, keys, weights of the softmax and values all in one block floating point format.

For studies of the format alone: any number of bits and any group, on any device; sums are taken in any order, and a
group of values is rounded once, when full.
"""

import torch
from torch import Tensor, nn

from ..formats.bfp import BFP, rounded
from .attention_functions import attention_modules, register_attention, rounding_attention, seen_by

ATTENTION = "tilepress-rounded"
QUERIES = 512  # at a time


def round_attention(model: nn.Module, format: BFP | None) -> None:
    """Let `model` attend with everything in `format`; None ends it."""
    for module in attention_modules(model):
        module.__dict__["tilepress_rounding"] = format
    model.set_attn_implementation("sdpa" if format is None else ATTENTION)  # type: ignore[operator]


def rounded_attention(
    query: Tensor, key: Tensor, value: Tensor, format: BFP, scaling: float, window: int | None = None
) -> Tensor:
    """query [batch, query heads, tokens, channels] over key and value [batch, heads, tokens, channels]: like query."""
    batch, heads, tokens, channels = key.shape
    rows = rounded(query, format).reshape(batch, heads, -1, tokens, channels)
    keys, values = rounded(key, format)[:, :, None].mT, rounded(value.mT, format).mT[:, :, None]
    token, parts = torch.arange(tokens, device=key.device), []
    for first in range(0, tokens, QUERIES):
        own = token[first : first + QUERIES]
        scores = (rows[..., own, :] @ keys * scaling).masked_fill(~seen_by(own, tokens, window), -1e30)
        weights = rounded((scores - scores.amax(-1, keepdim=True)).exp(), format)
        parts.append(weights @ values / weights.sum(-1, keepdim=True))
    return torch.cat(parts, -2).reshape(query.shape)


register_attention(ATTENTION, rounding_attention("tilepress_rounding", rounded_attention))
