"""What one layer of a model computes with while it reads a text: for models of hardware, which want real numbers."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from .blocks import find_blocks


@dataclass(frozen=True, eq=False)
class AttentionSample:
    """float32: `activations` [tokens, inputs], the `weights` [outputs, inputs] of the layer that makes queries of them,
    and the `queries` and `keys` [tokens, channels], before positions turn them."""

    activations: Tensor
    weights: Tensor
    queries: Tensor
    keys: Tensor


def attention_sample(model: Any, tokenizer: PreTrainedTokenizerBase, text: str, tokens: int = 64) -> AttentionSample:
    """Of the block in the middle, and of `tokens` after as many others, since a text's first are unlike the rest."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids[: 2 * tokens]
    if len(ids) < 2 * tokens:
        raise ValueError(f"the text has {len(ids)} tokens, and {2 * tokens} are needed")
    blocks = list(find_blocks(model).values())
    layers = dict(blocks[len(blocks) // 2].named_modules())
    found = [
        next((layer for name, layer in layers.items() if name.endswith(end)), None) for end in ("q_proj", "k_proj")
    ]
    query, key = found
    if not isinstance(query, nn.Linear) or not isinstance(key, nn.Linear):
        raise ValueError("the model's blocks have no dense q_proj and k_proj to take a sample of")
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[module] = inputs[0], output

    hooks = [layer.register_forward_hook(keep) for layer in (query, key)]
    try:
        with torch.no_grad():
            model(torch.tensor([ids]))
    finally:
        for hook in hooks:
            hook.remove()
    activations, queries, keys = (one[0, tokens:].float() for one in (*seen[query], seen[key][1]))
    return AttentionSample(activations, query.weight.detach().float(), queries, keys)
