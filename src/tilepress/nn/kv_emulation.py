"""Attention of a whole sequence at once, with the numbers that a packed cache gives token by token; on any device.

For measuring quality: nothing is packed, and memory grows with queries times tokens, a few queries at a time. Whatever
`kernels/attention_reference.py` says of one query is here computed for many: of block floating point to the bit, since
products of integers are exact in float32 and sums are taken in the same order; of sparse caches up to its roundings.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..formats.bfp import BFP, encode
from ..formats.kv import BLOCK, WIDEST, KvBfp, KvFormat, parse_kv, smoothed_channels
from ..kernels.attention_reference import SEGMENT, SMOOTHED, as_number, exponential
from .attention_functions import attention_modules, key_offsets, register_attention, seen_by
from .pruning import prune_blocks, prune_tokens

ATTENTION = "tilepress-emulated"
QUERIES = 256  # at a time; divides SEGMENT, and groups divide it


@dataclass(frozen=True)
class Emulation:
    """What the attention of a module is to give."""

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
        model.set_attn_implementation("sdpa")  # type: ignore[operator]
        return
    parsed = parse_kv(format)
    for module in attention_modules(model):
        usual = smoothed_channels(parsed, smoothing, int(module.__dict__["head_dim"]))
        module.__dict__["tilepress_kv"] = Emulation(parsed, usual if smoothed is None else smoothed)
    model.set_attn_implementation(ATTENTION)  # type: ignore[operator]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function "tilepress-emulated"."""
    wanted: Emulation | None = module.__dict__.get("tilepress_kv")
    if wanted is None:
        raise ValueError(f"{type(module).__name__} does not know which cache to emulate: call emulate_kv on the model")
    if wanted.format.bfp is None and not wanted.format.is_sparse:
        keys, values = (as_number(part, wanted.format).to(part.dtype) for part in (key, value))
        return sdpa_attention_forward(module, query, keys, values, attention_mask, scaling=scaling, **options)
    if key.shape[-2] != query.shape[-2]:
        raise ValueError("emulation takes whole sequences: use a packed cache to go on from one")
    if attention_mask is not None and not bool(attention_mask[:, 0, 0, 0].all()):
        raise ValueError("emulation takes padding on the right only")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    window = options.get("sliding_window")
    if wanted.format.bfp is None:
        out = emulate_sparse(query, key, value, wanted.format, scaling, window=window)
    else:
        keys = prune_tokens(_as_halves(key), wanted.format.key_sparsity)
        values = prune_tokens(_as_halves(value), wanted.format.value_sparsity)
        smoothed = wanted.smoothed_channels
        out = emulate(query, keys, values, wanted.format.bfp, scaling, window=window, smoothed_channels=smoothed)
    return out.transpose(1, 2).contiguous(), None


def emulate(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    format: KvBfp,
    scaling: float,
    *,
    window: int | None = None,
    smoothed_channels: int = 0,
) -> Tensor:
    """query [batch, query heads, tokens, channels], each token's over keys and values [batch, heads, tokens, channels]
    up to its own: shaped like it. `window` and `smoothed_channels`: see `PackedKv`."""
    batch, heads, tokens, channels = keys.shape
    rows = query.reshape(batch, heads, -1, tokens, channels)
    whole = _Sequence(keys, values, format, smoothed_channels)
    parts = [
        whole.attend(rows[..., first : first + QUERIES, :], first, scaling, window)
        for first in range(0, tokens, QUERIES)
    ]
    return torch.cat(parts, -2).reshape(query.shape).to(query.dtype)


def emulate_sparse(
    query: Tensor, keys: Tensor, values: Tensor, format: KvFormat, scaling: float, *, window: int | None = None
) -> Tensor:
    """As `emulate`, over a sparse cache: each query sees all of its own block, and what was kept of those before."""
    batch, heads, tokens, channels = keys.shape
    rows = query.reshape(batch, heads, -1, tokens, channels)
    k, left_k = _thinned(as_number(keys, format), format.key_sparsity)
    v, left_v = _thinned(as_number(values, format), format.value_sparsity)
    token = torch.arange(tokens, device=query.device)
    out = torch.empty_like(rows, dtype=torch.float32)
    for first in range(0, tokens, QUERIES):
        mine, seen = slice(first, first + QUERIES), slice(0, first + QUERIES)
        own = token[mine]
        is_open = (own // BLOCK == own[:, None] // BLOCK).to(torch.float32)
        q = rows[..., mine, :].to(torch.float32) * scaling
        scores = q @ k[..., seen, :].mT
        scores[..., mine] += (q @ left_k[..., mine, :].mT) * is_open
        weights = scores.masked_fill(~seen_by(own, scores.shape[-1], window), -torch.inf).softmax(-1)
        out[..., mine, :] = weights @ v[..., seen, :] + (weights[..., mine] * is_open) @ left_v[..., mine, :]
    return out.reshape(query.shape).to(query.dtype)


def _thinned(x: Tensor, percent: int) -> tuple[Tensor, Tensor]:
    """What is kept of x [batch, heads, tokens, channels], and what is left out: [batch, heads, 1, tokens, channels]."""
    kept = prune_blocks(x, percent)
    return kept[:, :, None].to(torch.float32), (x - kept)[:, :, None].to(torch.float32)


class _Sequence:
    """Keys and values of whole sequences, rounded once."""

    def __init__(self, keys: Tensor, values: Tensor, format: KvBfp, smoothed_channels: int) -> None:
        self.format, self.smoothed_channels = format, smoothed_channels
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
        scores = (scores * scaling).masked_fill(~seen_by(own, last, window), -1e30)
        weights = exponential(scores - scores.amax(-1, keepdim=True))
        return self._mix(weights, wide, first, last)

    def _scores(self, query: tuple[Tensor, Tensor], wide: Tensor, last: int) -> Tensor:
        """[batch, heads, rows, count, last], not yet scaled."""
        k, units = self.keys[0][:, :, :last], self.keys[1][:, :, :last]
        high = self._products(query, _cut(k, self.format.high), units)
        if self.format.high == self.format.mantissa:
            return high
        return torch.where(wide, high, self._products(query, _cut(k, self.format.mantissa), units))

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
            scores[..., token - first, : token + 1] = self._products(mine, _cut(keys, bits), units)[..., 0, :]

    def _mix(self, weights: Tensor, wide: Tensor, first: int, last: int) -> Tensor:
        group = self.format.group
        p, p_units = _integers(weights, group, -1)  # [..., count, groups, group], [..., count, groups]
        bits = torch.where(wide, self.format.high, self.format.mantissa)
        bits = _grouped(bits, group, WIDEST)  # [count, groups, group]
        groups_before = (torch.arange(first, last, device=weights.device) // group)[:, None]
        total, sum = torch.zeros_like(weights[..., :1]), torch.zeros_like(weights[..., :1])
        for segment in range(0, last, SEGMENT):
            part, share = torch.zeros_like(sum), torch.zeros_like(sum)
            for g in range(segment // group, min(-(-last // group), (segment + SEGMENT) // group)):
                term = self._full_group(p[..., g, :], bits[:, g], g)
                term = term.masked_fill(groups_before <= g, 0.0)
                unit = p_units[..., g, None]
                part = part + term * (unit * self.values[1][:, :, None, None, :, g])
                share = share + p[..., g, :].sum(-1, keepdim=True) * unit
            if segment <= first < segment + SEGMENT:
                part = part + self._open_groups(p, p_units, bits, first, last)
            total, sum = total + part, sum + share
        return total / sum

    def _full_group(self, p: Tensor, bits: Tensor, g: int) -> Tensor:
        """Weights [batch, heads, rows, count, group] times values of a full group: [..., count, channels]."""
        v = self.values[0][:, :, None, :, g].transpose(-1, -2)  # [batch, heads, 1, group, channels]
        narrow, wide = self.format.mantissa, self.format.high
        if narrow == wide:
            return p @ _cut(v, wide)
        is_wide = (bits == wide).to(p.dtype)
        return (p * is_wide) @ _cut(v, wide) + (p * (1 - is_wide)) @ _cut(v, narrow)

    def _open_groups(self, p: Tensor, p_units: Tensor, bits: Tensor, first: int, last: int) -> Tensor:
        """What each query gets from its own group, of which it knows the tokens up to itself."""
        group = self.format.group
        found = []
        for begin in range(first, last, group):
            count = min(group, last - begin)
            mine = slice(begin - first, begin - first + count)
            raw = self.raw[:, :, begin : begin + count]
            known = torch.ones(count, count, device=raw.device).tril()[..., None]
            v, units = _integers(raw[:, :, None] * known, group, -2)  # [batch, heads, count, channels, 1, group]
            v = _cut(v[..., 0, :], bits[mine, begin // group][:, None])
            product = torch.einsum("bhrqt,bhqct->bhrqc", p[..., mine, begin // group, :], v)
            found.append(product * (p_units[..., mine, begin // group, None] * units[:, :, None, :, :, 0]))
        return torch.cat(found, -2)


def _as_halves(x: Tensor) -> Tensor:
    return x.to(torch.float32).clamp(-65504.0, 65504.0).to(torch.float16).to(torch.float32)


def _integers(x: Tensor, group: int, axis: int) -> tuple[Tensor, Tensor]:
    """As `attention_reference.integers`, in float32, which holds them."""
    rounded = encode(x, BFP(group, WIDEST), axis)
    magnitude = rounded.magnitude.to(torch.float32)
    power = rounded.exponent.to(torch.int32).clamp(min=1) - 15 - (WIDEST - 1)
    units = ((power + 127) << 23).view(torch.float32)
    return torch.where(rounded.sign, -magnitude, magnitude), units


def _cut(whole: Tensor, bits: int | Tensor) -> Tensor:
    """Integers truncated to `bits`."""
    step = 1 << (WIDEST - bits)  # not a power by floats, which need not be exact on every device
    return (whole / step).trunc() * step


def _grouped(x: Tensor, group: int, fill: int) -> Tensor:
    """[count, tokens] cut in groups: [count, groups, group]."""
    missing = -x.shape[-1] % group
    return torch.nn.functional.pad(x, (0, missing), value=fill).reshape(len(x), -1, group)


register_attention(ATTENTION, attention)
