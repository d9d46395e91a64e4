"""MXFP4 as GPT-OSS stores it: E2M1 codes in groups of 32, and a power of two for each.

    NAME_blocks   uint8 [neurons, groups, 16]     two codes per byte, low half first
    NAME_scales   uint8 [neurons, groups]         E8M0

Fused experts have another dimension before these.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...formats import E2M1, Quantized, Scaling, WeightFormat
from ..embedded import ModelUnavailableError
from .fields import low_nibble_first
from .layer import AGAIN, Checkpoint, Files, Held, QuantizedLayer, SourceWeight

GROUP = 32
NAN = 255  # of E8M0
MXFP4 = WeightFormat(E2M1, Scaling(GROUP, "e8m0"))


def read_mxfp4(config: Mapping[str, Any], files: Files) -> Checkpoint:
    fused = [name for name, stored in files.stored.items() if name.endswith("_blocks") and len(stored.shape) == 4]
    if fused:
        raise ModelUnavailableError(
            f"its experts are fused, {fused[0].removesuffix('_blocks')} among them, and MXFP4 is read of plain linear "
            "layers only: give the model in bfloat16"
        )
    names = [name.removesuffix(".weight") for name in _stems(files)]
    return Checkpoint({name: _layer(files, name) for name in names})


def decode_blocks(name: str, blocks: Tensor, scales: Tensor) -> Held:
    """The weights of blocks [neurons, groups, 16] and scales [neurons, groups]."""
    return mx_weight(name, low_nibble_first(blocks).flatten(1), scales)


def mx_weight(name: str, codes: Tensor, scales: Tensor) -> Held:
    """codes uint8 [neurons, inputs] of E2M1, scales [neurons, groups] of E8M0."""
    if bool((scales == NAN).any()):
        raise ModelUnavailableError(f"{name} has scales that are not a number: {AGAIN}")
    return Held(MXFP4, Quantized(codes.contiguous(), scales.to(torch.uint8).contiguous()))


def _stems(files: Files) -> list[str]:
    return [name.removesuffix("_blocks") for name in files.stored if name.endswith(".weight_blocks")]


def _layer(files: Files, name: str) -> QuantizedLayer:
    parts = files.parts(name)
    neurons, groups, _ = parts.take("weight_blocks", "U8", (None, None, GROUP // 2))
    parts.take("weight_scales", "U8", (neurons, groups))
    return parts.layer_of((neurons, groups * GROUP), partial(_read, name))


def _read(name: str, tensors: Mapping[str, Tensor]) -> SourceWeight:
    return decode_blocks(name, tensors["weight_blocks"], tensors["weight_scales"])
