"""Attention over small caches, written to be read: the specification of the native one.

`attend` is over block floating point, `attend_sparse` over halves of which the smallest are left out.

What a cache holds after T tokens is a function of their keys and values alone: with `offsets` of the first tokens taken
from all keys, each key is rounded in groups of channels; each channel of the values in groups of tokens, of which the
last holds what has come so far; and then each token is truncated to its own bits. So a prompt at once and token by
token are the same, as is a group that is rounded anew with every token until it is full.

Queries and weights of the softmax are rounded to 8 bits in the same groups, so that all products are of integers:

    score  = scaling · Σ over groups of channels: (query · key) · unit of the query · unit of the key
    weight = exp(score - largest score), by `exponential`
    output = Σ over groups of tokens: (weights · values) · units, over the sum of the weights as rounded

Units are powers of two and integers below 2^24, so that every term is exact and only sums in float32 round: those of
scores in the order of groups; those of outputs in the order of groups within SEGMENT tokens, and then in the order of
segments. Whoever keeps that order has every bit.
"""

import torch
from torch import Tensor

from ..formats.bfp import BFP, encode
from ..formats.kv import BLOCK, WIDEST, KvBfp, KvFormat

SEGMENT = 1024  # tokens
SMOOTHED = 32  # first tokens, of which offsets are made
LEAST_EXPONENT = -40.0  # of exponential: less than FP16 can hold
_TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    format: KvBfp,
    scaling: float,
    *,
    first: int = 0,
    smoothed_channels: int = 0,
) -> Tensor:
    """One head's attention: query [rows, channels] over keys and values [tokens, channels]: [rows, channels] float32.

    Args:
        first: the first token that is seen; those before it only take part in their groups' rounding.
        smoothed_channels: how many channels of keys have an offset; see `key_offsets`.
    """
    tokens = len(keys)
    kept_bits = bits_of_tokens(format, tokens)
    smooth = _as_halves(keys) - key_offsets(keys, smoothed_channels)
    scores = _scores(integers(query, format.group), _truncated(integers(smooth, format.group), kept_bits[:, None]))
    scores = (scores * scaling)[:, first:]
    weights = torch.zeros(len(query), tokens)
    weights[:, first:] = exponential(scores - scores.amax(-1, keepdim=True))
    rounded = _truncated(integers(values, format.group, axis=0), kept_bits)
    return _mix(integers(weights, format.group), rounded, format.group)


def bits_of_tokens(format: KvBfp, tokens: int) -> Tensor:
    """Bits of magnitude that each of `tokens` tokens has: int64 [tokens]."""
    index = torch.arange(tokens)
    wide = (index < format.initial) | (index >= tokens - format.local)
    return torch.where(wide, format.high, format.mantissa)


def key_offsets(keys: Tensor, channels: int) -> Tensor:
    """What is subtracted from keys [tokens, channels], and from all of a query's scores by that: [channels].

    Half of the extreme value of each of the `channels` channels with the largest among the first tokens; 0 elsewhere.
    """
    half = _as_halves(keys[:SMOOTHED])
    extremes = half.gather(0, half.abs().argmax(0, keepdim=True))[0]
    chosen = torch.zeros_like(extremes, dtype=torch.bool)
    chosen[extremes.abs().argsort(descending=True, stable=True)[:channels]] = True
    return torch.where(chosen, extremes / 2, 0.0)


def _as_halves(x: Tensor) -> Tensor:
    """Rounded to FP16, which comes before everything else; in float32."""
    return x.to(torch.float32).clamp(-65504.0, 65504.0).to(torch.float16).to(torch.float32)


def integers(x: Tensor, group: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """x rounded to 8 bits in groups along `axis`: integers int64 [..., groups, group] and units float32 [..., groups],
    the grouped axis last."""
    rounded = encode(x, BFP(group, WIDEST), axis)
    magnitude = rounded.magnitude.to(torch.int64)
    power = rounded.exponent.to(torch.float64).clamp(min=1) - 15 - (WIDEST - 1)
    return torch.where(rounded.sign, -magnitude, magnitude), torch.exp2(power).to(torch.float32)


def exponential(x: Tensor) -> Tensor:
    """e^x of float32 x ≤ 0, by operations that give the same bits everywhere; within 2^-22 of it, e^-40 below -40."""
    x = x.clamp(min=LEAST_EXPONENT)
    halves = 12582912.0  # adding 1.5 · 2^23 leaves no place for a fraction
    n = (x * 1.44269504088896341 + halves) - halves
    r = (x - n * 0.693359375) - n * -2.12194440e-4
    sum = torch.full_like(r, _TERMS[0])
    for term in _TERMS[1:]:
        sum = sum * r + term
    sum = (sum * (r * r) + r) + 1.0
    return sum * ((n.to(torch.int32) + 127) << 23).view(torch.float32)


def _truncated(rounded: tuple[Tensor, Tensor], bits: Tensor) -> tuple[Tensor, Tensor]:
    """Integers [tokens, groups, group] of keys cut to `bits` [tokens, 1], or [channels, groups, tokens of a group] of
    values to `bits` [tokens]; units stay."""
    whole, units = rounded
    if bits.ndim == 1:
        missing = whole.shape[-2] * whole.shape[-1] - len(bits)
        bits = torch.nn.functional.pad(bits, (0, missing), value=WIDEST).reshape(whole.shape[-2:])
    else:
        bits = bits[:, :, None]
    drop = WIDEST - bits
    return whole.sign() * (whole.abs() >> drop << drop), units


def _scores(query: tuple[Tensor, Tensor], keys: tuple[Tensor, Tensor]) -> Tensor:
    """[rows, tokens], not yet scaled."""
    (q, q_units), (k, k_units) = query, keys
    total = torch.zeros(len(q), len(k))
    for group in range(q.shape[1]):
        product = (q[:, group] @ k[:, group].T).to(torch.float32)
        total = total + product * (q_units[:, group, None] * k_units[None, :, group])
    return total


def _mix(weights: tuple[Tensor, Tensor], values: tuple[Tensor, Tensor], group: int) -> Tensor:
    (p, p_units), (v, v_units) = weights, values
    rows, groups = p.shape[:2]
    total, sum = torch.zeros(rows, len(v)), torch.zeros(rows, 1)
    for begin in range(0, groups, SEGMENT // group):
        part, share = torch.zeros_like(total), torch.zeros_like(sum)
        for g in range(begin, min(begin + SEGMENT // group, groups)):
            product = (p[:, g] @ v[:, g].T).to(torch.float32)
            part = part + product * (p_units[:, g, None] * v_units[None, :, g])
            share = share + p[:, g].sum(-1, keepdim=True).to(torch.float32) * p_units[:, g, None]
        total, sum = total + part, sum + share
    return total / sum


def attend_sparse(
    query: Tensor, keys: Tensor, values: Tensor, format: KvFormat, scaling: float, *, first: int = 0
) -> Tensor:
    """A layer's attention: query [heads, rows, channels] of the last token over keys and values [heads, tokens,
    channels], all rounded to halves, those of full blocks pruned: [heads, rows, channels], by plain float64.

    Args:
        first: the first token that is seen.
    """
    k = pruned_blocks(as_number(keys, format), format.key_sparsity)[:, first:].to(torch.float64)
    v = pruned_blocks(as_number(values, format), format.value_sparsity)[:, first:].to(torch.float64)
    weights = torch.softmax(query.to(torch.float64) @ k.transpose(-1, -2) * scaling, -1)
    return weights @ v


def as_number(x: Tensor, format: KvFormat) -> Tensor:
    """x rounded to the halves of `format`; what is too large becomes the largest."""
    half = torch.float16 if format.number == "fp16" else torch.bfloat16
    largest = torch.finfo(half).max
    return x.to(torch.float32).clamp(-largest, largest).to(half)


def pruned_blocks(x: Tensor, percent: int) -> Tensor:
    """x [heads, tokens, channels] with `percent` % of each token's values zero, all heads taken together.

    They are the smallest in magnitude, of equals the first. Tokens of the last one's block have all, be it full or not.
    """
    full = (x.shape[1] - 1) // BLOCK * BLOCK
    values = x[:, :full].transpose(0, 1).flatten(1)
    order = values.abs().argsort(dim=-1, stable=True)
    pruned = values.scatter(-1, order[:, : values.shape[-1] * percent // 100], 0.0)
    return torch.cat([pruned.reshape(full, len(x), x.shape[2]).transpose(0, 1), x[:, full:]], 1)
