"""FP8 checkpoints with scales of blocks, as DeepSeek's, or of whole tensors: E4M3 codes times a scale.

weight             E4M3 [neurons, inputs]
weight_scale_inv   [neurons/128, inputs/128], rounded up; or weight_scale with one number
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...formats import E4M3
from ..embedded import ModelUnavailableError
from .grids import group_of, is_a_group, of_blocks, scaled
from .layer import AGAIN, FLOATS, Checkpoint, Files, QuantizedLayer, SourceWeight, finite

SCALES = ("weight_scale_inv", "weight_scale")
DROPPED = ("input_scale", "activation_scale")


def read_fp8(config: Mapping[str, Any], files: Files) -> Checkpoint:
    block = block_size(config.get("weight_block_size"))
    names = [name for name in files.layers("weight") if files.parts(name).type("weight") == "F8_E4M3"]
    why = "activations are rounded anew from their own range"
    dropped = {f"{name}.{part}": why for name in names for part in DROPPED if files.parts(name).has(part)}
    return Checkpoint({name: _layer(files, name, block) for name in names}, dropped)


def block_size(stated: Any) -> tuple[int, int] | None:
    """(neurons, inputs) of a block; None where a scale is of the whole tensor."""
    if stated is None:
        return None
    if not isinstance(stated, list) or len(stated) != 2 or not all(type(n) is int and n > 0 for n in stated):
        raise ModelUnavailableError(
            f"its quantization_config has blocks of {stated!r}, not of [neurons, inputs]: {AGAIN}"
        )
    if not is_a_group(stated[1]):
        raise ModelUnavailableError(f"its blocks are {stated[1]} inputs wide, and only multiples of 16 are read")
    return stated[0], stated[1]


def _layer(files: Files, name: str, block: tuple[int, int] | None) -> QuantizedLayer:
    parts = files.parts(name)
    neurons, inputs = parts.take("weight", "F8_E4M3", (None, None))
    scale = next((part for part in SCALES if parts.has(part)), SCALES[0])
    shapes = [(1,), (), (1, 1)] if block is None else [(-(-neurons // block[0]), -(-inputs // block[1]))]
    parts.take(scale, FLOATS, *shapes)
    return parts.layer_of((neurons, inputs), partial(_read, name, scale, block))


def _read(name: str, scale: str, block: tuple[int, int] | None, tensors: Mapping[str, Tensor]) -> SourceWeight:
    codes, scales = e4m3_codes(name, tensors["weight"]), finite(f"{name}.{scale}", tensors[scale])
    neurons, inputs = codes.shape
    if block is None:
        return scaled(E4M3, codes, scales.reshape(1, 1).expand(neurons, 1), None)
    return scaled(E4M3, codes, of_blocks(scales, neurons, block[0]), group_of(block[1], inputs))


def e4m3_codes(name: str, weight: Tensor) -> Tensor:
    """The codes of a float8_e4m3fn tensor, whose NaN no weight may be."""
    codes = weight.view(torch.uint8)
    if bool((codes & 127 == 127).any()):
        raise ModelUnavailableError(f"{name}.weight has weights that are not a number: {AGAIN}")
    return codes
