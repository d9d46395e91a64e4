"""Studies of KV caches: what each costs in quality.

All of it comes from emulation, which gives a packed cache's numbers for whole windows, on any device.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..formats import BFP, parse_activations
from ..formats.kv import is_folded, of_cache, parse_kv
from ..models.blocks import all_linear_layers, find_blocks, output_layer
from ..models.smoothing import find_attention, find_rotary
from ..nn import with_activations
from ..nn.attention_rounding import round_attention
from ..nn.kv_emulation import emulate_kv
from ..nn.kv_smoothing import ATTENTION as SMOOTHING_ATTENTION
from ..nn.kv_smoothing import Scaling
from .divergence import Divergence, _compare, _summary
from .scoring import predictions, stack
from .windows import Track, Windowing, plan


@dataclass(frozen=True)
class Cache:
    """What a model keeps keys and values in, see `formats.kv`; and its `activations`, inputs of linear layers.

    smoothing: where it has a part that is folded into weights, a model that has it must be given. smoothed: how many
    channels of a head have an offset, if not as many as `smoothing` says.
    """

    format: str
    smoothing: str = "none"
    activations: str = "fp"
    smoothed: int | None = None

    def __str__(self) -> str:
        offsets = None if self.smoothed is None else f"{self.smoothed} offsets"
        smoothing = None if self.smoothing == "none" else self.smoothing
        activations = None if self.activations == "fp" else self.activations
        return ", ".join(part for part in (self.format, smoothing, offsets, activations) if part)

    @contextmanager
    def emulated(self, model: Any) -> Iterator[None]:
        """`model` with it for as long as this lasts."""
        with _linear_activations(model, parse_activations(self.activations)):
            emulate_kv(model, self.format, of_cache(self.smoothing), smoothed=self.smoothed)
            try:
                yield
            finally:
                emulate_kv(model, "none")


@dataclass(frozen=True)
class Everywhere:
    """All activations in one format: inputs of linear layers, queries, keys, weights of the softmax, values."""

    format: BFP
    smoothing = "none"

    @contextmanager
    def emulated(self, model: Any) -> Iterator[None]:
        with _linear_activations(model, self.format):
            round_attention(model, self.format)
            try:
                yield
            finally:
                round_attention(model, None)


@dataclass(frozen=True, eq=False)
class BeforeRotation:
    """A cache of keys as they are before the rotary embedding; `scales`: block → [heads, channels], ones if not there.
    There is no such packed cache."""

    format: str
    scales: Mapping[str, Tensor] = field(default_factory=dict)
    smoothing = "none"

    @contextmanager
    def emulated(self, model: Any) -> Iterator[None]:
        format, rotary = parse_kv(self.format).bfp, find_rotary(model)
        if format is None:
            raise ValueError(f"keys before rotation are studied in block floating point, not in {self.format}")
        attentions = {name: find_attention(block, name) for name, block in find_blocks(model).items()}
        for name, attention in attentions.items():
            ones = torch.ones(1, int(attention.head_dim), device=model.device)
            attention.__dict__["tilepress_scaling"] = Scaling(self.scales.get(name, ones), format, 0, rotary)
        model.set_attn_implementation(SMOOTHING_ATTENTION)
        try:
            yield
        finally:
            model.set_attn_implementation("sdpa")
            for attention in attentions.values():
                del attention.__dict__["tilepress_scaling"]


Setting = Cache | Everywhere | BeforeRotation
PLAIN = Cache("fp16")


def judge(
    model: Any,
    tokens: Tensor,
    settings: Sequence[Setting],
    windowing: Windowing | None = None,
    track: Track = iter,
    *,
    smoothed: Mapping[Setting, Any] | None = None,
) -> dict[Setting, Divergence]:
    """Each setting against the same model with halves in its cache, on `tokens` [count].

    smoothed: setting → the model that has its smoothing folded into weights. Attention of all is as before then.
    """
    models = {setting: folded(model, setting, smoothed or {}) for setting in settings}
    figures: dict[Setting, list[Tensor]] = {setting: [] for setting in settings}
    batches = plan(len(tokens), windowing or Windowing(), model)
    for batch, setting in track([(batch, setting) for batch in batches for setting in (PLAIN, *settings)]):
        rows, targets = stack(tokens, batch)
        if setting is PLAIN:
            with PLAIN.emulated(model):
                plain = predictions(model, rows, targets.shape[1])
        else:
            with setting.emulated(models[setting]):
                predicted = predictions(models[setting], rows, targets.shape[1])
            figures[setting].append(_compare(predicted, plain, targets))
    return {setting: _summary(torch.cat(rows, dim=1)) for setting, rows in figures.items()}


def folded(model: Any, setting: Setting, smoothed: Mapping[Setting, Any]) -> Any:
    """`model`, or that of `smoothed` which has what the setting needs folded into weights."""
    if not is_folded(setting.smoothing):
        return model
    if setting not in smoothed:
        raise ValueError(f"{setting.smoothing} smoothing is folded into weights, and no model was given that has it")
    return smoothed[setting]


def _linear_activations(model: Any, format: Any) -> Any:
    """Inputs of every linear layer but the output layer in `format`, a BFP; as they are if it is fp."""
    if format != "fp" and not isinstance(format, BFP):
        raise ValueError(f"a study of caches has activations fp or bfp:gN:mN, not {format}")
    layers = () if format == "fp" else all_linear_layers(model)
    return with_activations(model, {name: format for name in layers if name != output_layer(model)})
