"""Losses of a model by window, under formats of activations and of KV caches.

Formats are compared on the same windows, so their differences are paired: most of a window's loss is common to all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...evaluate import Windowing
from ...evaluate.kv_studies import Cache
from ...evaluate.perplexity import batch_losses
from ...evaluate.windows import plan
from ...formats import BFP, Anda, AndaSearch, parse_activations
from ...formats.kv import is_folded, of_cache
from ...models.blocks import all_linear_layers, output_layer
from ...nn import with_activations
from ...nn.emulation import Named
from ...nn.kv_emulation import emulate_kv
from ..item import Track
from .kv_cache import KvStudy


@dataclass(frozen=True)
class Formats:
    """Of the inputs of linear layers, and of keys and values with their smoothing; "" leaves them as they come."""

    activations: str = ""
    kv: str = ""
    smoothing: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.activations, self.kv, self.smoothing))) or "as it comes"


def window_losses(study: KvStudy, formats: Formats, track: Track) -> list[float]:
    """Nats per token of each of the study's windows, by emulation. Smoothing is learned on the study's other part of
    the text and folded into unpacked weights, which are not rounded again."""
    model, sizes = study.subject.model, study.sizes
    if is_folded(formats.smoothing):
        model = study.smoothed(Cache(formats.kv, formats.smoothing), track)
    windows = plan(len(study.tokens), Windowing(window=sizes.tokens, limit=sizes.windows, begin=study.begin), model)
    with _rounded(model, formats):
        losses = [batch_losses(model, study.tokens, one) for one in track(windows, str(formats))]
    return [float(one.double().mean()) for one in losses]


@contextmanager
def _rounded(model: Any, formats: Formats) -> Iterator[None]:
    with with_activations(model, _layer_formats(model, formats.activations)):
        emulate_kv(model, formats.kv or "none", of_cache(formats.smoothing))
        try:
            yield
        finally:
            emulate_kv(model, "none")


def _layer_formats(model: Any, activations: str) -> dict[str, BFP | Named]:
    """Every linear layer but the output layer → `activations`."""
    format = parse_activations(activations or "fp")
    if format == "fp":
        return {}
    if isinstance(format, Anda | AndaSearch):
        raise ValueError(f"all layers have one format here, bfp:gN:mN, int8 or bf16, not {format}")
    return {name: format for name in all_linear_layers(model) if name != output_layer(model)}
