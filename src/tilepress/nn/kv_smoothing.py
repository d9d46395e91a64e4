"""Attention over a cache in block floating point that scales of keys can be learned through.

Keys times S and queries over S give the same scores, but round differently. This is `kv_emulation` with gradients:
rounding counts as if it were not there, sums are taken in any order, and a group of values is rounded once, when full.
It also knows a cache that no packed one is like: of keys as they are before the rotary embedding, which are rotated,
and rounded to 8 bits, whenever they are read.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..formats.bfp import BFP, decode, encode, rounded
from ..formats.kv import WIDEST, KvBfp
from .attention_functions import key_offsets, register_attention, rounding_attention, seen_by

ATTENTION = "tilepress-smoothing"
Rotary = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # a tensor and positions to cosines and sines


@dataclass(frozen=True)
class Scaling:
    """What the keys of a module are multiplied by before they are rounded to `format`: `scales` [heads, channels].

    `smoothed_channels`: how many have an offset then. `rotary`: the model's embedding, where keys are cached before it.
    """

    scales: Tensor
    format: KvBfp
    smoothed_channels: int = 0
    rotary: Rotary | None = None


def scaled_attention(
    query: Tensor, key: Tensor, value: Tensor, scaled: Scaling, scaling: float, window: int | None = None
) -> Tensor:
    """query [batch, query heads, tokens, channels] over key and value [batch, heads, tokens, channels]: like query."""
    batch, heads, tokens, channels = key.shape
    format = scaled.format
    query_scales = scaled.scales[:, None, None] if scaled.rotary is None else 1.0
    rows = _round(query.reshape(batch, heads, -1, tokens, channels) / query_scales, format, WIDEST)
    high, low = (rows @ _cached_keys(key, scaled, bits)[:, :, None].mT for bits in (format.high, format.mantissa))
    own = torch.arange(tokens, device=key.device)
    wide = (own < format.initial) | (own > own[:, None] - format.local)
    scores = (torch.where(wide, high, low) * scaling).masked_fill(~seen_by(own, tokens, window), -1e30)
    weights = _round((scores - scores.amax(-1, keepdim=True)).exp(), format, WIDEST)
    weights = weights / weights.sum(-1, keepdim=True)
    high, low = (_round(value.mT, format, bits).mT[:, :, None] for bits in (format.high, format.mantissa))
    return ((weights * wide) @ high + (weights * ~wide) @ low).reshape(query.shape)


def _cached_keys(key: Tensor, scaled: Scaling, bits: int) -> Tensor:
    """Keys [batch, heads, tokens, channels] as a cache with so many bits for all of them gives them."""
    scales, format = scaled.scales[:, None], scaled.format
    if scaled.rotary is None:
        smooth = key * scales
        return _round(smooth - key_offsets(smooth, scaled.smoothed_channels), format, bits)
    positions = torch.arange(key.shape[-2], device=key.device)[None]
    cosine, sine = (part[:, None].to(key.dtype) for part in scaled.rotary(key, positions))
    plain = _rotate(key, cosine, -sine)
    return _round(_rotate(_round(plain * scales, format, bits) / scales, cosine, sine), format, WIDEST)


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each channel of the first half with its own of the second, as Llama does; minus the sine turns back."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def _round(x: Tensor, format: KvBfp, bits: int) -> Tensor:
    """Rounded to `bits` along the last axis, with the gradient of `x`."""
    y = _nearest(x, format.group, bits) if format.nearest and bits < WIDEST else rounded(x, BFP(format.group, bits))
    return x + (y - x).detach()


def _nearest(x: Tensor, group: int, bits: int) -> Tensor:
    """The nearest numbers of so many bits, as a cache makes them of those of 8."""
    whole, drop = encode(x, BFP(group, WIDEST), nonfinite="saturate"), WIDEST - bits
    magnitude = (whole.magnitude + (1 << drop >> 1)).clamp(max=(1 << WIDEST) - 1) >> drop << drop
    return decode(replace(whole, magnitude=magnitude), x.dtype)


register_attention(ATTENTION, rounding_attention("tilepress_scaling", scaled_attention, has_gradient=True))
