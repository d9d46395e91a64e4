"""Llama-like models of any shape with random weights, and the same packed: what speed is measured on where a model
itself is not here.

A context is filled with random keys and values, so that a long one costs no prompt.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ..nn import PackedLinear, decode_natively
from ..tiles import pack
from .linear import Contestant
from .model import TransformersWriter

SPREAD = 0.02  # of random weights
DRAWN = 1 << 20  # random weights, which are repeated
SAMPLE = 1 << 16  # of them, that a threshold is found on


def random_model(config: LlamaConfig, dtype: torch.dtype) -> Any:
    """All layers have the same weights, DRAWN of them over and over, each in memory of its own: speed does not know the
    difference."""
    model = _without_weights(config, dtype)
    model.to_empty(device="cpu")
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    drawn = torch.randn(DRAWN) * SPREAD
    for weight in model.parameters():
        _repeat(drawn, weight.data) if weight.ndim == 2 else weight.data.fill_(1)
    return model.eval()


def _repeat(drawn: Tensor, weight: Tensor) -> None:
    """Fill `weight` with `drawn`, end to end."""
    flat, whole = weight.view(-1), weight.numel() // len(drawn) * len(drawn)
    flat[:whole].view(-1, len(drawn)).copy_(drawn)
    flat[whole:].copy_(drawn[: len(flat) - whole])


@torch.no_grad()
def packed_model(dense: Any, contestant: Contestant, threads: int | None = None) -> Any:
    """`dense` with all its linear layers packed, the output layer too; everything else is shared with it."""
    model = _without_weights(dense.config, dense.dtype)
    for path, module in list(dense.named_modules()):
        place, _, last = path.rpartition(".")
        if isinstance(module, nn.Linear):
            mask = None if contestant.density == 1 else _largest(module.weight, contestant.density)
            packed = pack(module.weight, contestant.format, mask=mask, threads=threads)
            setattr(model.get_submodule(place), last, PackedLinear(packed, None, contestant.activations))
        elif not list(module.children()):
            setattr(model.get_submodule(place), last, module)
    decode_natively(model)
    return model.eval()


def _without_weights(config: LlamaConfig, dtype: torch.dtype) -> Any:
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    return model.to(dtype)


def _largest(weight: Tensor, density: float) -> Tensor:
    """A mask of about that share of the weights, by the quantile of the first of them."""
    sample = weight.flatten()[:SAMPLE].float().abs()
    return weight.abs() > sample.quantile(1 - density)


class FilledWriter(TransformersWriter):
    """Writes after a prompt of which all but the last token is in the cache already, as random keys and values.

    attention: the implementation of transformers' that is set before every text; what the model has if None.
    """

    def __init__(self, model: Any, cache: Callable[[], Any] | None = None, attention: str | None = None) -> None:
        super().__init__(model, cache or (lambda: DynamicCache(config=model.config)))
        self.attention = attention
        self._filled: dict[tuple[int, ...], Any] = {}

    def write(self, prompt: Tensor, tokens: int) -> list[float]:
        if self.attention is not None:
            self.model.set_attn_implementation(self.attention)
        return super().write(prompt, tokens)

    def past(self, prompt: Tensor) -> Any:
        key = tuple(prompt.shape)
        if key not in self._filled:
            self._filled = {key: self._fill(*key)}
        return deepcopy(self._filled[key])

    def _fill(self, batch: int, depth: int) -> Any:
        assert self.cache is not None
        cache, config, dtype = self.cache(), self.model.config, self.model.dtype
        shape = (batch, config.num_key_value_heads, depth - 1, config.head_dim)
        for layer in range(config.num_hidden_layers if depth > 1 else 0):
            keys, values = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
            cache.update(keys, values, layer)
        return cache
