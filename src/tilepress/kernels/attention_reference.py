"""Attention over small caches, written to be read: the specification of the native one.

`attend` is over block floating point, `attend_sparse` over halves of which the smallest are left out.

What a cache holds after T tokens is a function of their keys and values alone: keys are rotated by `hadamard`, if at
all; with `offsets` of the first tokens taken from all of them, each is rounded in groups of channels; each channel of
the values in groups of tokens, of which the last holds what has come so far; and then each token is cut to its own
bits, truncated or to the nearest. So a prompt at once and token by token are the same, as is a group that is rounded
anew with every token until it is full.

Queries and weights of the softmax are rounded to 8 bits in the same groups, so that all products are of integers:

    score  = scaling · Σ over groups of channels: (query · key) · unit of the query · unit of the key, then `softcapped`
    weight = exp(score - largest score), by `exponential`
    output = Σ over groups of tokens: (weights · values) · units, over the sum of the weights as rounded

A sink is one more score in a softmax, of no value: it may be the largest, and its weight, not rounded, comes last in
the sum of the weights.

Units are powers of two and integers below 2^24, so that every term is exact and only sums in float32 round: those of
scores in the order of groups; those of outputs in the order of groups within SEGMENT tokens, and then in the order of
segments. Whoever keeps that order has every bit.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..formats.bfp import BFP, encode
from ..formats.kv import BLOCK, WIDEST, KvBfp, KvFormat
from .hadamard import transform

SEGMENT = 1024  # tokens
SMOOTHED = 32  # first tokens, of which offsets are made
LEAST_EXPONENT = -40.0  # of exponential: less than FP16 can hold
NO_SINK = -1e30  # its weight is too small to change a sum
_TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


@dataclass(frozen=True, eq=False)
class Softmax:
    """What some models do with scores before their softmax.

    softcap: scores become softcap · tanh(score / softcap), as Gemma 2 has it.
    sinks: of each query head [heads], a score in its softmax that stands for no value, as GPT-OSS has it.
    """

    softcap: float | None = None
    sinks: Tensor | None = None

    def __post_init__(self) -> None:
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise ValueError(f"a soft cap is a positive number, not {self.softcap}")

    def capped(self, scores: Tensor) -> Tensor:
        """Of any shape, by operations that give the same bits everywhere."""
        if self.softcap is None:
            return scores
        power = exponential(scores.abs() / self.softcap * -2.0)
        return ((1.0 - power) / (power + 1.0) * self.softcap).copysign(scores)

    def sinks_of(self, scores: Tensor) -> Tensor:
        """[heads, 1] like `scores` [heads, tokens]; less than any score where there are none."""
        if self.sinks is None:
            return torch.full_like(scores[:, :1], NO_SINK)
        return self.sinks.to(scores)[:, None]


PLAIN = Softmax()


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    format: KvBfp,
    scaling: float,
    *,
    first: int = 0,
    smoothed_channels: int = 0,
    rotated: bool = False,
    softmax: Softmax = PLAIN,
) -> Tensor:
    """One head's attention: query [rows, channels] over keys and values [tokens, channels]: [rows, channels] float32.

    Args:
        first: the first token that is seen; those before it only take part in their groups' rounding.
        smoothed_channels: how many channels of keys have an offset; see `key_offsets`.
        rotated: whether keys and queries are rotated first.
        softmax: what else is done with scores; a sink for each row.
    """
    if rotated:
        query, keys = transform(query), transform(keys)
    tokens = len(keys)
    kept_bits = bits_of_tokens(format, tokens)
    smooth = _as_halves(keys) - key_offsets(keys, smoothed_channels)
    rounded_keys = _cut(integers(smooth, format.group), kept_bits[:, None], format.nearest)
    scores = _scores(integers(query, format.group), rounded_keys)
    scores = softmax.capped(scores * scaling)[:, first:]
    sinks = softmax.sinks_of(scores)
    largest = torch.maximum(scores.amax(-1, keepdim=True), sinks)
    weights = torch.zeros(len(query), tokens)
    weights[:, first:] = exponential(scores - largest)
    rounded_values = _cut(integers(values, format.group, axis=0), kept_bits, format.nearest)
    return _mix(integers(weights, format.group), rounded_values, format.group, exponential(sinks - largest))


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


def _cut(rounded: tuple[Tensor, Tensor], bits: Tensor, nearest: bool) -> tuple[Tensor, Tensor]:
    """Integers [tokens, groups, group] of keys with `bits` [tokens, 1], or [channels, groups, tokens of a group] of
    values with `bits` [tokens], truncated or the nearest such number; units stay."""
    whole, units = rounded
    if bits.ndim == 1:
        missing = whole.shape[-2] * whole.shape[-1] - len(bits)
        bits = torch.nn.functional.pad(bits, (0, missing), value=WIDEST).reshape(whole.shape[-2:])
    else:
        bits = bits[:, :, None]
    drop = WIDEST - bits
    magnitude = whole.abs()
    if nearest:
        magnitude = (magnitude + (1 << drop >> 1)).clamp(max=(1 << WIDEST) - 1)
    return whole.sign() * (magnitude >> drop << drop), units


def _scores(query: tuple[Tensor, Tensor], keys: tuple[Tensor, Tensor]) -> Tensor:
    """[rows, tokens], not yet scaled."""
    (q, q_units), (k, k_units) = query, keys
    total = torch.zeros(len(q), len(k))
    for group in range(q.shape[1]):
        product = (q[:, group] @ k[:, group].T).to(torch.float32)
        total = total + product * (q_units[:, group, None] * k_units[None, :, group])
    return total


def _mix(weights: tuple[Tensor, Tensor], values: tuple[Tensor, Tensor], group: int, sinks: Tensor) -> Tensor:
    """`sinks`: their weights, [rows, 1]."""
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
    return total / (sum + sinks)


def attend_sparse(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    format: KvFormat,
    scaling: float,
    *,
    first: int = 0,
    softmax: Softmax = PLAIN,
) -> Tensor:
    """A layer's attention: query [heads, rows, channels] of the last token over keys and values [heads, tokens,
    channels], all rounded to halves, those of full blocks pruned: [heads, rows, channels], by plain float64.

    Args:
        first: the first token that is seen.
        softmax: what else is done with scores; a sink for each row of each head.
    """
    k = pruned_blocks(as_number(keys, format), format.key_sparsity)[:, first:].to(torch.float64)
    v = pruned_blocks(as_number(values, format), format.value_sparsity)[:, first:].to(torch.float64)
    scores = query.to(torch.float64) @ k.transpose(-1, -2) * scaling
    if softmax.softcap is not None:
        scores = softmax.softcap * torch.tanh(scores / softmax.softcap)
    sinks = torch.tensor(-math.inf) if softmax.sinks is None else softmax.sinks.reshape(*scores.shape[:2], 1)
    weights = torch.softmax(torch.cat([scores, sinks.to(scores).expand_as(scores[..., :1])], -1), -1)
    return weights[..., :-1] @ v


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
