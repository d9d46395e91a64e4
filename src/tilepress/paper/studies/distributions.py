"""What a model attends to, and how keys and values are spread over channels, as Harmonia's figures show them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...formats import BFP
from ...formats.bfp import rounded
from ...nn.attention_functions import key_offsets

SENTENCES = 16  # at once


@dataclass(frozen=True)
class Attended:
    """Of each head [layers, heads]: shares of its attention that the first and the last `few` tokens get, and what a
    token between them gets. `even`: the share of so many tokens if all got the same."""

    initial: Tensor
    local: Tensor
    between: Tensor
    few: int
    even: float


def mean_attention(model: Any, windows: Tensor) -> Tensor:
    """Weights of the softmax, averaged over `windows` [count, length]: [layers, heads, length, length]."""
    model.set_attn_implementation("eager")
    try:
        return torch.stack([_attention(model, rows) for rows in windows.split(SENTENCES)]).sum(0) / len(windows)
    finally:
        model.set_attn_implementation("sdpa")


@torch.inference_mode()
def _attention(model: Any, rows: Tensor) -> Tensor:
    """Summed over rows."""
    output = model.base_model(input_ids=rows.to(model.device), output_attentions=True, use_cache=False)
    return torch.stack([one.sum(0) for one in output.attentions]).cpu()


def attended(attention: Tensor, few: int) -> Attended:
    """Of the queries in the second half of a window, which see more than the first and the last `few` tokens.

    attention: [layers, heads, length, length]. A query's own token is the last that it sees.
    """
    length = attention.shape[-1]
    queries = torch.arange(length // 2, length)
    if length < 4 * few:
        raise ValueError(f"the first and the last {few} tokens need sentences of {4 * few} and more, not {length}")
    seen, rows = queries + 1, attention[..., queries, :]
    initial = rows[..., :few].sum(-1)
    local = torch.stack([rows[..., row, one - few : one].sum(-1) for row, one in enumerate(seen.tolist())], -1)
    between = (rows.sum(-1) - initial - local) / (seen - 2 * few)
    return Attended(initial.mean(-1), local.mean(-1), between.mean(-1), few, float((few / seen).mean()))


@torch.inference_mode()
def keys_and_values(model: Any, windows: Tensor) -> tuple[Tensor, Tensor]:
    """As a cache is given them, of `windows` [count, tokens]: [layers, count, heads, tokens, channels] each."""
    layers = model.base_model(input_ids=windows.to(model.device), use_cache=True).past_key_values.layers
    keys, values = (torch.stack([getattr(one, name) for one in layers]).cpu() for name in ("keys", "values"))
    return keys, values


def without_offsets(keys: Tensor, channels: int) -> Tensor:
    """Keys [layers, count, heads, tokens, channels] less the offsets of so many channels of each head."""
    return torch.stack([layer - key_offsets(layer, channels) for layer in keys])


def channel_magnitudes(values: Tensor) -> Tensor:
    """[layers, heads, channels]: means of magnitudes over windows and tokens."""
    return values.abs().mean((1, 3))


def outliers(magnitudes: Tensor) -> Tensor:
    """[layers, heads]: the largest channel over the median one."""
    return magnitudes.amax(-1) / magnitudes.median(-1).values


def variance_between_channels(values: Tensor) -> Tensor:
    """[layers, heads]: the share of the magnitudes' variance that their channel explains. Near 1, a channel is alike
    in all tokens."""
    absolute = values.abs()
    return channel_magnitudes(values).var(-1, correction=0) / absolute.transpose(1, 2).flatten(2).var(-1, correction=0)


def share_of_zeros(values: Tensor, format: BFP) -> float:
    """Of values [..., count] that are not zero, those that are in `format`, in groups along the last axis."""
    present = values != 0
    return float(((rounded(values, format) == 0) & present).sum() / present.sum())


def geometric_mean(values: Tensor) -> float:
    return float(values.log().mean().exp())
