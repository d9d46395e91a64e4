"""MXFP4 as GPT-OSS stores it: E2M1 codes in groups of 32, and a power of two for each.

    NAME_blocks   uint8 [neurons, groups, 16]     two codes per byte, low half first
    NAME_scales   uint8 [neurons, groups]         E8M0

Fused experts have another dimension before these, NAME being the model's parameter, `…experts.gate_up_proj` say. The
model has those weights as [experts, inputs, neurons], and gate and up take turns in its neurons: rows stay where they
are.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...formats import E2M1, Quantized, Scaling, WeightFormat
from ..embedded import ModelUnavailableError
from .fields import low_nibble_first
from .layer import AGAIN, Checkpoint, Files, Held, QuantizedExperts, QuantizedLayer, SourceWeight

GROUP = 32
NAN = 255  # of E8M0
MXFP4 = WeightFormat(E2M1, Scaling(GROUP, "e8m0"))


def read_mxfp4(config: Mapping[str, Any], files: Files) -> Checkpoint:
    stems = [name.removesuffix("_blocks") for name in files.stored if name.endswith("_blocks")]
    layers = [stem.removesuffix(".weight") for stem in stems if stem.endswith(".weight")]
    fused = [stem for stem in stems if not stem.endswith(".weight")]
    experts = {stem: _experts(files, stem) for stem in fused}
    return Checkpoint({name: _layer(files, name) for name in layers}, experts=experts)


def decode_blocks(name: str, blocks: Tensor, scales: Tensor) -> Held:
    """The weights of blocks [neurons, groups, 16] and scales [neurons, groups]."""
    return mx_weight(name, low_nibble_first(blocks).flatten(1), scales)


def mx_weight(name: str, codes: Tensor, scales: Tensor) -> Held:
    """codes uint8 [neurons, inputs] of E2M1, scales [neurons, groups] of E8M0."""
    if bool((scales == NAN).any()):
        raise ModelUnavailableError(f"{name} has scales that are not a number: {AGAIN}")
    return Held(MXFP4, Quantized(codes.contiguous(), scales.to(torch.uint8).contiguous()))


def _layer(files: Files, name: str) -> QuantizedLayer:
    parts = files.parts(name)
    neurons, groups, _ = parts.take("weight_blocks", "U8", (None, None, GROUP // 2))
    parts.take("weight_scales", "U8", (neurons, groups))
    return parts.layer_of((neurons, groups * GROUP), partial(_read, name, "weight"))


def _experts(files: Files, name: str) -> QuantizedExperts:
    owner, _, projection = name.rpartition(".")
    parts = files.parts(owner)
    count, neurons, groups, _ = parts.take(f"{projection}_blocks", "U8", (None, None, None, GROUP // 2))
    parts.take(f"{projection}_scales", "U8", (count, neurons, groups))
    return QuantizedExperts(count, parts.layer_of((neurons, groups * GROUP), partial(_read, name, projection)))


def _read(name: str, stem: str, tensors: Mapping[str, Tensor]) -> SourceWeight:
    return decode_blocks(name, tensors[f"{stem}_blocks"], tensors[f"{stem}_scales"])
