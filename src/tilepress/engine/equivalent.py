"""A runner that computes what a model's own modules compute, for those who have a model and expect its results."""

from typing import Any

import torch
from torch import nn

from ..kernels.linear import READS_TENSORS
from ..nn import PackedLinear
from ..nn.decoding import decodes_natively
from ..nn.kv_emulation import is_emulated
from ..nn.model_kv_cache import default_cache, default_smoothing
from .batch import Runner
from .opening import is_native, open_models

_NUMBERS = {torch.float32: "float32", torch.bfloat16: "bf16"}  # of transformers' own cache


def may_stand_in(model: Any) -> bool:
    """Whether a model has such a runner while nobody changes it: its linear layers are packed, and the engine knows its
    family."""
    return READS_TENSORS and is_native(model) and _is_packed(model)


def equivalent_runner(model: Any, kv: str | None = None, smoothing: str = "none") -> Runner | None:
    """With the model's weights as they are now, and with its cache, if not with another. None where there is none such,
    or modules are watched."""
    if kv is None:
        kv, smoothing = cache_of_model(model)
    if model.training or kv is None or is_watched(model) or not may_stand_in(model):
        return None
    try:
        opened, _ = open_models(model, kv=kv, smoothing=smoothing)
    except ValueError:  # a cache, or a layer in place of another, that native code does not know
        return None
    return opened.runner


def cache_of_model(model: Any) -> tuple[Any, str]:
    """The format of its keys and values, None where the engine has none such, and their smoothing."""
    return default_cache(model) or _NUMBERS.get(model.dtype), default_smoothing(model)


def _is_packed(model: nn.Module) -> bool:
    """Whether every linear layer of its blocks is packed."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | PackedLinear)]
    packed = [layer for layer in layers if isinstance(layer, PackedLinear) and layer.matrix is not None]
    return len(packed) >= len(layers) - 1 and bool(packed)  # the output layer may be left as it was


def is_watched(model: nn.Module) -> bool:
    """Whether somebody has hooks in the modules, put another `forward` into one, or rounds its cache for a study."""
    return any(
        module._forward_hooks
        or module._forward_pre_hooks
        or not decodes_natively(module.__dict__.get("forward"))
        or is_emulated(module)
        for module in model.modules()
    )
