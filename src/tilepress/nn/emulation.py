"""Activations in block floating point, int8 or bf16, on any model, packed or not, on any device, with any weights.

Packed layers that have native kernels for it compute with integers. Elsewhere the inputs of linear layers are rounded
to the same values, and the layers compute with them as they always do: emulation. Both give the same result but for
the order in which float32 sums are added. In gradients the rounding counts as none.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..compression.grid import spanning
from ..formats import BFP, Integer, parse_activations, parse_weight
from ..formats.bfp import FP16_MAX, rounded
from ..kernels.gradients import straight_through
from .linear import PackedLinear

Rounding = Callable[[Tensor], Tensor]
Named = Literal["int8", "bf16"]
INT8_ROWS = parse_weight("int8:row")


def to_fp16(x: Tensor) -> Tensor:
    """Rounded to FP16, saturated, in its own type."""
    return x.clamp(-FP16_MAX, FP16_MAX).to(torch.float16).to(x.dtype)


def to_int8(x: Tensor) -> Tensor:
    """Rounded to int8 with one scale per row, in its own type."""
    rows = x.reshape(-1, x.shape[-1]).to(torch.float32)
    extents = rows.abs().amax(-1, keepdim=True)
    return spanning(-extents, extents, INT8_ROWS).round(rows).view(x.shape).to(x.dtype)


def to_bf16(x: Tensor) -> Tensor:
    """Rounded to bf16, in its own type."""
    return x.to(torch.bfloat16).to(x.dtype)


def roundings(activations: Mapping[str, str]) -> dict[str, BFP | Named]:
    """Layer → what its inputs are rounded to, of those that packed layers take: `bf16` is for the processor to take or
    leave, so it is left out."""
    formats = {name: parse_activations(stated) for name, stated in activations.items() if stated != "float"}
    return {name: format for name, format in formats.items() if format == "int8" or isinstance(format, BFP)}


def round_inputs(model: nn.Module, roundings: Mapping[str, Rounding | BFP | Named]) -> ExitStack:
    """Round the inputs of the layers named from now on, by emulation everywhere; closing what is returned ends it."""
    stack = ExitStack()
    for name, rounding in roundings.items():
        function = _function(rounding)
        stack.callback(model.get_submodule(name).register_forward_pre_hook(_hook(function)).remove)
    return stack


def _function(rounding: Rounding | BFP | Named) -> Rounding:
    if isinstance(rounding, BFP):
        return partial(rounded, format=rounding)
    if isinstance(rounding, str):
        return {"int8": to_int8, "bf16": to_bf16}[rounding]
    return rounding


def set_activations(model: nn.Module, formats: Mapping[str, BFP | Named]) -> ExitStack:
    """Inputs of the layers named in block floating point, int8 or bf16, from now on: natively where a layer can, by
    emulation elsewhere. Bf16 always is emulated: packed layers round to it only where that is faster. Closing what is
    returned makes everything as it was."""
    integers = [name for name, format in formats.items() if format != "bf16"]
    natively = {name: layer for name in integers if (layer := _native_layer(model, name)) is not None}
    stack = round_inputs(model, {name: format for name, format in formats.items() if name not in natively})
    for name, layer in natively.items():
        stack.callback(layer.set_activations, layer.activations)
        layer.set_activations(str(formats[name]))
    return stack


@contextmanager
def emulated(model: nn.Module, roundings: Mapping[str, Rounding | BFP]) -> Iterator[nn.Module]:
    """`round_inputs` for as long as this lasts."""
    with round_inputs(model, roundings):
        yield model


@contextmanager
def with_activations(model: nn.Module, formats: Mapping[str, BFP | Named]) -> Iterator[nn.Module]:
    """`set_activations` for as long as this lasts."""
    with set_activations(model, formats):
        yield model


def _native_layer(model: nn.Module, name: str) -> PackedLinear | None:
    layer = model.get_submodule(name)
    if not isinstance(layer, PackedLinear) or layer.matrix is None:
        return None
    is_integer = isinstance(layer.matrix.format.element, Integer) and layer.matrix.operand_bits == 8
    return layer if is_integer else None


def _hook(rounding: Rounding) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    def round_first(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return straight_through(arguments[0], rounding(arguments[0].detach())), *arguments[1:]

    return round_first
