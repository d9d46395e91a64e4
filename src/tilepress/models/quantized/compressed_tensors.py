"""Checkpoints of compressed-tensors (LLM Compressor): integers packed or not, FP8, NVFP4 and MXFP4.

weight_packed         int32 [neurons, words]: signed codes plus half their range     pack-quantized
                      uint8 [neurons, inputs/2]: E2M1, low half first                nvfp4-, mxfp4-pack-quantized
weight                int8 or E4M3 [neurons, inputs]                                 int-, float-quantized
weight_shape          int64 [2]                                                      of packed integers
weight_scale          one per tensor, neuron, group or block; E8M0 in MXFP4, E4M3 in NVFP4, where it is divided by
weight_global_scale   one number
weight_zero_point     int8 like the scales, or packed along the neurons
weight_g_idx          [inputs]: the group of each input, -1 where groups are in order
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...formats import E2M1, E4M3
from ..embedded import ModelUnavailableError
from .fields import low_nibble_first, unpack_fields, words_of
from .fp8 import block_size, e4m3_codes
from .grids import group_count, group_of, integers_of_groups, is_a_group, of_blocks, scaled
from .layer import AGAIN, FLOATS, Checkpoint, Files, Parts, QuantizedLayer, SourceWeight, finite
from .mxfp4 import GROUP as MX_GROUP
from .mxfp4 import mx_weight
from .settings import integer
from .targets import refuse_code_beside, settings_of

NV_GROUP = 16
PACKED_BITS = (2, 4, 8)
DROPPED = ("input_scale", "input_zero_point", "input_global_scale", "output_scale", "k_scale", "v_scale", "q_scale")
WHY_DROPPED = "activations and caches are rounded anew from their own range"
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Spread:
    """How scales lie: one per `group` inputs (None: the row) of `height` neurons, as a tensor of one of `shapes`."""

    neurons: int
    group: int | None
    height: int
    shapes: tuple[tuple[int, ...], ...]

    def per_neuron(self, values: Tensor) -> Tensor:
        """[neurons, groups]."""
        rows = -(-self.neurons // self.height)
        return of_blocks(values.reshape(rows, -1), self.neurons, self.height)


def read_compressed_tensors(config: Mapping[str, Any], files: Files) -> Checkpoint:
    refuse_code_beside(config)
    packed = files.layers("weight_packed")
    plain = [name for name in files.layers("weight") if files.parts(name).type("weight") in ("I8", "F8_E4M3")]
    dropped = {name: WHY_DROPPED for name in files.stored if name.rpartition(".")[2] in DROPPED}
    layers = {name: _layer(files.parts(name), settings_of(config, name)) for name in [*packed, *plain]}
    return Checkpoint(layers, dropped)


def _layer(parts: Parts, settings: Mapping[str, Any]) -> QuantizedLayer:
    if not parts.has("weight_packed"):
        return _plain(parts, settings)
    if parts.type("weight_packed") == "I32":
        return _packed_integers(parts, settings)
    return _nvfp4(parts) if parts.has("weight_global_scale") else _mxfp4(parts)


def _packed_integers(parts: Parts, settings: Mapping[str, Any]) -> QuantizedLayer:
    bits = integer(settings, "num_bits", PACKED_BITS)
    parts.take("weight_shape", ("I64", "I32"), (2,))
    neurons, inputs = (int(size) for size in parts.read("weight_shape"))
    if neurons < 1 or inputs < 1:
        raise ModelUnavailableError(f"{parts.layer}.weight_shape is [{neurons}, {inputs}]: {AGAIN}")
    parts.take("weight_packed", "I32", (neurons, words_of(inputs, bits)))
    spread = _spread(parts, settings, neurons, inputs)
    _take_zero_point(parts, bits, neurons, spread)
    if parts.has("weight_g_idx"):
        parts.take("weight_g_idx", ("I32", "I64"), (inputs,))
    return parts.layer_of((neurons, inputs), partial(_read_packed, parts.layer, bits, inputs, spread))


def _plain(parts: Parts, settings: Mapping[str, Any]) -> QuantizedLayer:
    neurons, inputs = parts.take("weight", ("I8", "F8_E4M3"), (None, None))
    spread = _spread(parts, settings, neurons, inputs)
    if parts.type("weight") == "F8_E4M3":
        if not is_a_group(spread.group):
            raise ModelUnavailableError(f"{parts.layer} has scales of {spread.group} inputs: multiples of 16 are read")
        return parts.layer_of((neurons, inputs), partial(_read_e4m3, parts.layer, spread))
    bits = integer(settings, "num_bits", range(2, 9))
    _take_zero_point(parts, bits, neurons, spread)
    return parts.layer_of((neurons, inputs), partial(_read_int8, parts.layer, bits, spread))


def _nvfp4(parts: Parts) -> QuantizedLayer:
    neurons, half = parts.take("weight_packed", "U8", (None, None))
    parts.take("weight_scale", "F8_E4M3", (neurons, group_count(2 * half, NV_GROUP)))
    parts.take("weight_global_scale", FLOATS, (1,), ())
    return parts.layer_of((neurons, 2 * half), partial(_read_nvfp4, parts.layer))


def _mxfp4(parts: Parts) -> QuantizedLayer:
    neurons, half = parts.take("weight_packed", "U8", (None, None))
    parts.take("weight_scale", "U8", (neurons, group_count(2 * half, MX_GROUP)))
    return parts.layer_of((neurons, 2 * half), partial(_read_mxfp4, parts.layer))


def _spread(parts: Parts, settings: Mapping[str, Any], neurons: int, inputs: int) -> Spread:
    """How the layer's scales lie, which are taken."""
    spread = _spread_of(settings, neurons, inputs)
    parts.take("weight_scale", FLOATS, *spread.shapes)
    return spread


def _spread_of(settings: Mapping[str, Any], neurons: int, inputs: int) -> Spread:
    strategy = settings.get("strategy") or ("group" if settings.get("group_size") else "tensor")
    if strategy == "tensor":
        return Spread(neurons, None, neurons, ((1,), (), (1, 1)))
    if strategy == "channel":
        return Spread(neurons, None, 1, ((neurons, 1), (neurons,)))
    if strategy == "group":
        group = group_of(integer(settings, "group_size"), inputs)
        if group is not None and group < 1:
            raise ModelUnavailableError(f"its quantization_config has groups of {group} inputs: {AGAIN}")
        return Spread(neurons, group, 1, ((neurons, group_count(inputs, group)),))
    if strategy == "block":
        height, width = block_size(settings.get("block_structure")) or (neurons, inputs)
        group = group_of(width, inputs)
        return Spread(neurons, group, height, ((-(-neurons // height), group_count(inputs, group)),))
    raise ModelUnavailableError(
        f"its quantization_config has scales by {strategy!r}: tensor, channel, group and block are read"
    )


def _take_zero_point(parts: Parts, bits: int, neurons: int, spread: Spread) -> None:
    if parts.type("weight_zero_point") == "I32":
        parts.take("weight_zero_point", "I32", (words_of(neurons, bits), spread.shapes[0][-1]))
    elif parts.has("weight_zero_point"):
        parts.take("weight_zero_point", "I8", *spread.shapes)


def _read_packed(name: str, bits: int, inputs: int, spread: Spread, tensors: Tensors) -> SourceWeight:
    codes = unpack_fields(tensors["weight_packed"], bits, inputs)
    zeros = _zero_points(name, bits, spread, tensors)
    scales = spread.per_neuron(finite(f"{name}.weight_scale", tensors["weight_scale"]))
    owners = _owners(name, tensors.get("weight_g_idx"), scales.shape[1])
    return integers_of_groups(codes, zeros, scales, bits, spread.group, owners)


def _read_int8(name: str, bits: int, spread: Spread, tensors: Tensors) -> SourceWeight:
    codes = _unsigned(f"{name}.weight", tensors["weight"], bits)
    scales = spread.per_neuron(finite(f"{name}.weight_scale", tensors["weight_scale"]))
    zeros = _zero_points(name, bits, spread, tensors)
    return integers_of_groups(codes, zeros, scales, bits, spread.group, None)


def _read_e4m3(name: str, spread: Spread, tensors: Tensors) -> SourceWeight:
    scales = spread.per_neuron(finite(f"{name}.weight_scale", tensors["weight_scale"]))
    return scaled(E4M3, e4m3_codes(name, tensors["weight"]), scales, spread.group)


def _read_nvfp4(name: str, tensors: Tensors) -> SourceWeight:
    whole = tensors["weight_global_scale"].to(torch.float32).reshape(())
    if not float(whole):
        raise ModelUnavailableError(f"{name}.weight_global_scale is zero, and scales are divided by it: {AGAIN}")
    scales = finite(name, tensors["weight_scale"].to(torch.float32) / whole)
    return scaled(E2M1, low_nibble_first(tensors["weight_packed"]), scales, NV_GROUP)


def _read_mxfp4(name: str, tensors: Tensors) -> SourceWeight:
    return mx_weight(name, low_nibble_first(tensors["weight_packed"]), tensors["weight_scale"])


def _zero_points(name: str, bits: int, spread: Spread, tensors: Tensors) -> Tensor | None:
    """uint8 [neurons, groups], counted from the least code; None where there are none."""
    zeros = tensors.get("weight_zero_point")
    if zeros is None:
        return None
    if zeros.dtype == torch.int32:
        return unpack_fields(zeros.t(), bits, spread.neurons).t()
    return spread.per_neuron(_unsigned(f"{name}.weight_zero_point", zeros, bits))


def _unsigned(name: str, codes: Tensor, bits: int) -> Tensor:
    """uint8 codes of signed ones, counted from the least."""
    half = 1 << (bits - 1)
    least, most = map(int, codes.aminmax())
    if least < -half or most >= half:
        raise ModelUnavailableError(f"{name} has numbers from {least} to {most}, which are not of {bits} bits: {AGAIN}")
    return (codes.to(torch.int16) + half).to(torch.uint8)


def _owners(name: str, given: Tensor | None, groups: int) -> Tensor | None:
    if given is None or bool((given == -1).all()):
        return None
    owners = given.to(torch.int64)
    if bool((owners < 0).any()) or bool((owners >= groups).any()):
        raise ModelUnavailableError(f"{name}.weight_g_idx names groups beyond the {groups} that there are: {AGAIN}")
    return owners
