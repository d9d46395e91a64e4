"""What attention functions of transformers' have in common that ask their module how to round."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ..kernels.attention_reference import SMOOTHED
from ..kernels.gradients import without_gradient


def register_attention(name: str, function: Callable[..., tuple[Tensor, None]]) -> None:
    """Let models of transformers' have the attention `name`, with masks as torch's own takes them."""
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)


def rounding_attention(
    attribute: str,
    compute: Callable[[Tensor, Tensor, Tensor, Any, float, int | None], Tensor],
    *,
    has_gradient: bool = False,
) -> Callable[..., tuple[Tensor, None]]:
    """An attention function, causal and of whole sequences, padded on the right if at all: `compute` of query, key and
    value [batch, heads, tokens, channels], what the module's `attribute` says, the scaling of scores, and the window if
    any. Without a gradient of its own, backward() through it raises RuntimeError."""

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
        out = compute(query, key, value, module.__dict__[attribute], scaling, options.get("sliding_window"))
        if not has_gradient:
            out = without_gradient(out, (query, key, value), "attention with emulated rounding")
        return out.transpose(1, 2).contiguous(), None

    return attention


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
