"""Attention with queries, keys, weights of the softmax and values all in one block floating point format.

For studies of the format alone: any number of bits and any group, on any device; sums are taken in any order, and a
group of values is rounded once, when full.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ..formats.bfp import BFP, rounded

ATTENTION = "tilepress-rounded"
QUERIES = 512  # at a time


def round_attention(model: nn.Module, format: BFP | None) -> None:
    """Let `model` attend with everything in `format`; None ends it."""
    for module in model.modules():
        if "layer_idx" in module.__dict__ and "head_dim" in module.__dict__:
            module.__dict__["tilepress_rounding"] = format
    model.set_attn_implementation("sdpa" if format is None else ATTENTION)  # type: ignore[operator]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function "tilepress-rounded": causal, of whole sequences without padding."""
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    format: BFP = module.__dict__["tilepress_rounding"]
    out = rounded_attention(query, key, value, format, scaling, options.get("sliding_window"))
    return out.transpose(1, 2).contiguous(), None


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
        seen = token <= own[:, None]
        if window is not None:
            seen &= token > own[:, None] - window
        scores = (rows[..., own, :] @ keys * scaling).masked_fill(~seen, -1e30)
        weights = rounded((scores - scores.amax(-1, keepdim=True)).exp(), format)
        parts.append(weights @ values / weights.sum(-1, keepdim=True))
    return torch.cat(parts, -2).reshape(query.shape)


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
