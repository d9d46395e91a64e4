"""What attention functions of transformers' have in common that ask their module how to round."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ..kernels.attention_reference import PLAIN, SMOOTHED, Softmax
from ..kernels.gradients import without_gradient


def register_attention(name: str, function: Callable[..., tuple[Tensor, None]]) -> None:
    """Let models of transformers' have the attention `name`, with masks as torch's own takes them."""
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)


def softmax_of(options: Mapping[str, Any]) -> Softmax:
    """What a model wants done with scores, by the names that transformers has for it."""
    softcap, sinks = options.get("softcap"), options.get("s_aux")
    return PLAIN if softcap is None and sinks is None else Softmax(softcap, sinks)


def attend_plainly(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, softmax: Softmax
) -> Tensor:
    """query [batch, query heads, new, channels] over key and value [batch, heads, tokens, channels], as transformers'
    eager attention does. mask: bool, true where a token is seen; None is all up to the query's own."""
    rows, (new, tokens) = query.shape[1] // key.shape[1], (query.shape[2], key.shape[2])
    keys, values = (part.repeat_interleave(rows, 1) for part in (key, value))
    scores = query @ keys.mT * scaling
    if softmax.softcap is not None:
        scores = softmax.softcap * torch.tanh(scores / softmax.softcap)
    seen = seen_by(torch.arange(tokens - new, tokens, device=query.device), tokens, None) if mask is None else mask
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    if softmax.sinks is not None:
        sinks = softmax.sinks.to(scores)[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return weights[..., :tokens] @ values


def rounding_attention(
    attribute: str, compute: Callable[..., Tensor], *, has_gradient: bool = False, takes_softmax: bool = False
) -> Callable[..., tuple[Tensor, None]]:
    """An attention function, causal and of whole sequences, padded on the right if at all: `compute` of query, key and
    value [batch, heads, tokens, channels], what the module's `attribute` says, the scaling of scores, and the window if
    any; and a `Softmax` if it takes one. Without a gradient of its own, backward() through it raises RuntimeError."""

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        if attribute not in module.__dict__:
            raise ValueError(
                f"{type(module).__name__} does not know how to round: set the attention of the whole model"
            )
        if key.shape[-2] != query.shape[-2]:
            raise ValueError("emulation takes whole sequences: use a packed cache to go on from one")
        if attention_mask is not None and not bool(attention_mask[:, 0, 0, 0].all()):
            raise ValueError("emulation takes padding on the right only")
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        softmax = softmax_of(options)
        if softmax is not PLAIN and not takes_softmax:
            raise ValueError("this rounding knows no soft caps and no attention sinks: use a KV cache's emulation")
        more = (softmax,) if takes_softmax else ()
        out = compute(query, key, value, module.__dict__[attribute], scaling, options.get("sliding_window"), *more)
        if not has_gradient:
            out = without_gradient(out, (query, key, value), "attention with emulated rounding")
        return out.transpose(1, 2).contiguous(), None

    return attention


def usual_attention(model: Any) -> str:
    """What transformers gives `model` where nothing is asked for: sdpa knows no soft caps and no sinks."""
    return "sdpa" if getattr(model, "_supports_sdpa", True) else "eager"


def attention_modules(model: nn.Module) -> Iterator[nn.Module]:
    return (module for module in model.modules() if {"layer_idx", "head_dim"} <= module.__dict__.keys())


def seen_by(own: Tensor, tokens: int, window: int | None) -> Tensor:
    """Which of `tokens` tokens each query, whose own is `own` [queries], sees: [queries, tokens]."""
    token, last = torch.arange(tokens, device=own.device), own[:, None]
    return token <= last if window is None else (token <= last) & (token > last - window)


def key_offsets(keys: Tensor, channels: int) -> Tensor:
    """As `attention_reference.key_offsets`, of [batch, heads, tokens, channels]: [batch, heads, 1, channels]."""
    first = keys[..., :SMOOTHED, :]
    extremes = first.gather(-2, first.abs().argmax(-2, keepdim=True))
    order = extremes.abs().argsort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(extremes).scatter(-1, order[..., :channels], 1.0)
    return chosen * (extremes / 2)
