"""Attention of a whole sequence at once, with the numbers that a packed cache gives token by token; on any device.

For measuring quality. Every token counts as decoded, whether of a prompt or of an answer: its query sees the last group
of values at the size that it has then, and its own last tokens as those with more bits. A packed cache does the same
with a prompt. So on a CPU a store is filled and dropped, layer by layer, wherever it can hold the heads.

Elsewhere nothing is packed, and memory grows with queries times tokens, SEGMENT queries at a time. Whatever
`kernels/attention_reference.py` says of one query is here computed for many: of block floating point to the bit, since
products of integers are exact in float32 and sums are taken in the same order; of sparse caches up to its roundings.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from ..formats.bfp import BFP, encode
from ..formats.kv import BLOCK, WIDEST, KvBfp, KvFormat, parse_kv, smoothed_channels
from ..kernels.attention_reference import NO_SINK, PLAIN, SEGMENT, SMOOTHED, Softmax, as_number, exponential
from ..kernels.hadamard import transform
from ..kernels.kv_store import can_pack, kv_store
from .attention_functions import (
    attend_plainly,
    attention_modules,
    key_offsets,
    register_attention,
    rounding_attention,
    seen_by,
    usual_attention,
)
from .kv_pruning import prune_blocks, prune_tokens

ATTENTION = "tilepress-emulated"


@dataclass(frozen=True)
class Emulation:
    """The cache that a module's attention emulates."""

    format: KvFormat
    smoothed_channels: int = 0


def emulate_kv(
    model: nn.Module, format: str | KvFormat, smoothing: str = "none", *, smoothed: int | None = None
) -> None:
    """Let `model` attend as if its cache were in `format`, whole sequences at a time; "none" ends it.

    smoothed: how many channels of a head have an offset, if not as many as `smoothing` says.
    """
    if format == "none":
        for module in attention_modules(model):
            module.__dict__.pop("tilepress_kv", None)
        model.set_attn_implementation(usual_attention(model))  # type: ignore[operator]
        return
    parsed = parse_kv(format)
    for module in attention_modules(model):
        usual = smoothed_channels(parsed, smoothing, int(module.__dict__["head_dim"]))
        module.__dict__["tilepress_kv"] = Emulation(parsed, usual if smoothed is None else smoothed)
    model.set_attn_implementation(ATTENTION)  # type: ignore[operator]


def is_emulated(module: nn.Module) -> bool:
    """Whether an attention module rounds keys and values; others never do."""
    return "tilepress_kv" in module.__dict__


def emulated_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    emulation: Emulation,
    scaling: float,
    window: int | None = None,
    softmax: Softmax = PLAIN,
) -> Tensor:
    """query [batch, query heads, tokens, channels], each token's over key and value [batch, heads, tokens, channels] up
    to its own, or the last `window` of these: shaped like it."""
    format = emulation.format
    if format.bfp is None and not format.is_sparse:
        return _over_halves(query, key, value, format, scaling, window, softmax)
    if query.is_cpu and can_pack(format, key.shape[-1]):
        batch, heads, _, channels = key.shape
        smoothed = emulation.smoothed_channels
        store = kv_store(format, batch, heads, channels, window=window, smoothed_channels=smoothed)
        return store.attend(query, key, value, scaling, softmax=softmax)
    return vectorised(query, key, value, emulation, scaling, window, softmax)


def _over_halves(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    format: KvFormat,
    scaling: float,
    window: int | None,
    softmax: Softmax,
) -> Tensor:
    keys, values = (as_number(part, format).to(part.dtype) for part in (key, value))
    tokens = query.shape[-2]
    seen = None if window is None else seen_by(torch.arange(tokens, device=query.device), tokens, window)
    if softmax is not PLAIN:
        return attend_plainly(query, keys, values, seen, scaling, softmax)
    return scaled_dot_product_attention(
        query, keys, values, seen, is_causal=seen is None, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )


def vectorised(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    emulation: Emulation,
    scaling: float,
    window: int | None = None,
    softmax: Softmax = PLAIN,
) -> Tensor:
    """`emulated_attention` of what is packed, with nothing packed."""
    format = emulation.format
    if format.bfp is None:
        return emulate_sparse(query, key, value, format, scaling, window=window, softmax=softmax)
    rows, keys = (transform(query), transform(key)) if format.rotated else (query, key)
    keys = prune_tokens(_as_halves(keys), format.key_sparsity)
    values = prune_tokens(_as_halves(value), format.value_sparsity)
    smoothed = emulation.smoothed_channels
    options: dict[str, Any] = {"window": window, "smoothed_channels": smoothed, "softmax": softmax}
    out = emulate(rows, keys, values, format.bfp, scaling, **options)
    return out.to(query.dtype)


def emulate(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    format: KvBfp,
    scaling: float,
    *,
    window: int | None = None,
    smoothed_channels: int = 0,
    softmax: Softmax = PLAIN,
) -> Tensor:
    """query [batch, query heads, tokens, channels], each token's over keys and values [batch, heads, tokens, channels]
    up to its own: shaped like it. `window` and `smoothed_channels`: see `BfpKvStore`."""
    batch, heads, tokens, channels = keys.shape
    rows = query.reshape(batch, heads, -1, tokens, channels)
    whole = _Sequence(keys, values, format, smoothed_channels, softmax)
    parts = [
        whole.attend(rows[..., first : first + SEGMENT, :], first, scaling, window)
        for first in range(0, tokens, SEGMENT)
    ]
    return torch.cat(parts, -2).reshape(query.shape).to(query.dtype)


def emulate_sparse(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    format: KvFormat,
    scaling: float,
    *,
    window: int | None = None,
    softmax: Softmax = PLAIN,
) -> Tensor:
    """As `emulate`, over a sparse cache: each query sees all of its own block, and the non-zeros of those before."""
    batch, heads, tokens, channels = keys.shape
    rows = query.reshape(batch, heads, -1, tokens, channels)
    k, left_k = _pruned(as_number(keys, format), format.key_sparsity)
    v, left_v = _pruned(as_number(values, format), format.value_sparsity)
    token = torch.arange(tokens, device=query.device)
    out = torch.empty_like(rows, dtype=torch.float32)
    for first in range(0, tokens, SEGMENT):
        mine, seen = slice(first, first + SEGMENT), slice(0, first + SEGMENT)
        own = token[mine]
        is_open = (own // BLOCK == own[:, None] // BLOCK).to(torch.float32)
        q = rows[..., mine, :].to(torch.float32) * scaling
        scores = q @ k[..., seen, :].mT
        scores[..., mine] += (q @ left_k[..., mine, :].mT) * is_open
        scores = softmax.capped(scores).masked_fill(~seen_by(own, scores.shape[-1], window), -torch.inf)
        weights = torch.cat([scores, _sinks(softmax, scores)], -1).softmax(-1)[..., :-1]
        out[..., mine, :] = weights @ v[..., seen, :] + (weights[..., mine] * is_open) @ left_v[..., mine, :]
    return out.reshape(query.shape).to(query.dtype)


def _pruned(x: Tensor, percent: int) -> tuple[Tensor, Tensor]:
    """x [batch, heads, tokens, channels] pruned, and what was left out: [batch, heads, 1, tokens, channels] each."""
    pruned = prune_blocks(x, percent)
    return pruned[:, :, None].to(torch.float32), (x - pruned)[:, :, None].to(torch.float32)


class _Sequence:
    """Keys and values of whole sequences, rounded once."""

    def __init__(self, keys: Tensor, values: Tensor, format: KvBfp, smoothed_channels: int, softmax: Softmax) -> None:
        self.format, self.smoothed_channels, self.softmax = format, smoothed_channels, softmax
        self.halves = _as_halves(keys)
        self.keys = _integers(self.halves - key_offsets(self.halves, smoothed_channels), format.group, -1)
        self.raw = _as_halves(values)
        self.values = _integers(self.raw, format.group, -2)

    def attend(self, query: Tensor, first: int, scaling: float, window: int | None) -> Tensor:
        """Queries [batch, heads, rows, count, channels] of the tokens from `first` on, over all up to their own."""
        count, device = query.shape[-2], query.device
        last = first + count
        token = torch.arange(last, device=device)
        own = token[first:]
        wide = (token < self.format.initial) | (token > own[:, None] - self.format.local)
        scores = self._scores(_integers(query, self.format.group, -1), wide, last)
        if self.smoothed_channels and first < SMOOTHED:
            self._set_first_scores(scores, query, first)
        scores = self.softmax.capped(scores * scaling).masked_fill(~seen_by(own, last, window), -1e30)
        sinks = _sinks(self.softmax, scores)
        largest = torch.maximum(scores.amax(-1, keepdim=True), sinks)
        return self._mix(exponential(scores - largest), exponential(sinks - largest), wide, first, last)

    def _scores(self, query: tuple[Tensor, Tensor], wide: Tensor, last: int) -> Tensor:
        """[batch, heads, rows, count, last], not yet scaled."""
        k, units = self.keys[0][:, :, :last], self.keys[1][:, :, :last]
        high = self._products(query, self._cut(k, self.format.high), units)
        if self.format.high == self.format.mantissa:
            return high
        return torch.where(wide, high, self._products(query, self._cut(k, self.format.mantissa), units))

    @staticmethod
    def _products(query: tuple[Tensor, Tensor], k: Tensor, k_units: Tensor) -> Tensor:
        q, q_units = query
        total = torch.zeros((*q.shape[:4], k.shape[2]), device=q.device)
        for group in range(q.shape[-2]):
            product = q[..., group, :] @ k[:, :, None, :, group].transpose(-1, -2)
            total = total + product * (q_units[..., group, None] * k_units[:, :, None, None, :, group])
        return total

    def _set_first_scores(self, scores: Tensor, query: Tensor, first: int) -> None:
        """Before SMOOTHED tokens have come, every query has offsets of its own."""
        for token in range(first, min(first + query.shape[-2], SMOOTHED - 1)):
            halves = self.halves[..., : token + 1, :]
            keys, units = _integers(halves - key_offsets(halves, self.smoothed_channels), self.format.group, -1)
            index = torch.arange(token + 1, device=keys.device)
            wide = (index < self.format.initial) | (index > token - self.format.local)
            bits = torch.where(wide, self.format.high, self.format.mantissa)[:, None, None]
            mine = _integers(query[..., token - first, None, :], self.format.group, -1)
            scores[..., token - first, : token + 1] = self._products(mine, self._cut(keys, bits), units)[..., 0, :]

    def _mix(self, weights: Tensor, of_sinks: Tensor, wide: Tensor, first: int, last: int) -> Tensor:
        group = self.format.group
        p, p_units = _integers(weights, group, -1)  # [..., count, groups, group], [..., count, groups]
        wide = _grouped(wide, group)  # [count, groups, group]
        total = torch.zeros((*weights.shape[:-1], self.raw.shape[-1] + 1), device=weights.device)
        for segment in range(0, last, SEGMENT):
            groups = slice(segment // group, (segment + SEGMENT) // group)
            part = torch.zeros_like(total)
            for term in self._terms(p[..., groups, :], p_units[..., groups], wide[:, groups], first, groups).unbind(3):
                part = part + term
            if segment == first:
                part[..., :-1] += self._open_groups(p[..., groups, :], p_units[..., groups], wide[:, groups], first)
            total = total + part
        return total[..., :-1] / (total[..., -1:] + of_sinks)

    def _terms(self, p: Tensor, p_units: Tensor, wide: Tensor, first: int, groups: slice) -> Tensor:
        """What groups of weights [batch, heads, rows, count, groups, group] and their values add, and the weights' own
        sum beside it: [batch, heads, rows, groups, count, channels + 1]. Groups that are not full add no values."""
        v, units = (part[:, :, :, groups].movedim(3, 2)[:, :, None] for part in self.values)
        products = self._products_of_values(p.transpose(3, 4), wide.transpose(0, 1), v.mT)
        own = torch.arange(first, first + p.shape[3], device=p.device) // self.format.group
        group = torch.arange(groups.start, groups.start + p.shape[4], device=p.device)
        products = products.masked_fill(own[:, None] <= group[:, None, None], 0.0)
        p_units = p_units.transpose(3, 4)[..., None]
        sums = p.sum(-1).transpose(3, 4)[..., None]
        return torch.cat([products * (p_units * units[..., None, :]), sums * p_units], -1)

    def _products_of_values(self, p: Tensor, wide: Tensor, v: Tensor) -> Tensor:
        """p [..., count, group] times v [..., group, channels], which has more bits where `wide`, shaped as p, says."""
        if self.format.mantissa == self.format.high:
            return p @ self._cut(v, self.format.high)
        return (p * wide) @ self._cut(v, self.format.high) + (p * ~wide) @ self._cut(v, self.format.mantissa)

    def _open_groups(self, p: Tensor, p_units: Tensor, wide: Tensor, first: int) -> Tensor:
        """What each query gets from its own group, of which it knows the tokens up to itself: [..., count, channels].
        The groups are those of the queries."""
        group, count = self.format.group, p.shape[3]
        index = torch.arange(count, device=p.device)
        own = index, index // group
        mine, units, wide = p[..., *own, :], p_units[..., *own], wide[own]
        raw = self.raw[:, :, first : first + count]
        raw = pad(raw, (0, 0, 0, -count % group)).reshape(*raw.shape[:2], -1, group, raw.shape[-1])
        known = torch.ones(group, group, device=raw.device).tril()[..., None]
        v, v_units = (x.flatten(2, 3)[:, :, :count] for x in _integers(raw[:, :, :, None] * known, group, -2))
        bits = torch.where(wide, self.format.high, self.format.mantissa)[:, None]
        product = torch.einsum("bhrqt,bhqct->bhrqc", mine, self._cut(v[..., 0, :], bits))
        return product * (units[..., None] * v_units[:, :, None, :, :, 0])

    def _cut(self, whole: Tensor, bits: int | Tensor) -> Tensor:
        """Integers truncated to `bits`, or the nearest that have them."""
        step = 1 << (WIDEST - bits)  # not a power by floats, which need not be exact on every device
        if self.format.nearest:
            whole = whole + whole.sign() * (step >> 1)
        most = (1 << WIDEST) - 1
        return (whole.clamp(-most, most) / step).trunc() * step


def _sinks(softmax: Softmax, scores: Tensor) -> Tensor:
    """Like `scores` [batch, heads, rows, count, tokens], of one token; none is a score too small to count."""
    one = torch.full_like(scores[..., :1], NO_SINK)
    return one if softmax.sinks is None else softmax.sinks.to(one).reshape(*one.shape[1:3], 1, 1).expand_as(one)


def _as_halves(x: Tensor) -> Tensor:
    return x.to(torch.float32).clamp(-65504.0, 65504.0).to(torch.float16).to(torch.float32)


def _integers(x: Tensor, group: int, axis: int) -> tuple[Tensor, Tensor]:
    """As `attention_reference.integers`, in float32, which holds them."""
    rounded = encode(x, BFP(group, WIDEST), axis)
    magnitude = rounded.magnitude.to(torch.float32)
    power = rounded.exponent.to(torch.int32).clamp(min=1) - 15 - (WIDEST - 1)
    units = ((power + 127) << 23).view(torch.float32)
    return torch.where(rounded.sign, -magnitude, magnitude), units


def _grouped(wide: Tensor, group: int) -> Tensor:
    """bool [count, tokens] cut in groups: [count, groups, group]."""
    return pad(wide, (0, -wide.shape[-1] % group), value=True).reshape(len(wide), -1, group)


register_attention(ATTENTION, rounding_attention("tilepress_kv", emulated_attention, takes_softmax=True))
