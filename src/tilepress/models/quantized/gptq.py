"""GPTQ checkpoints as AutoGPTQ and GPTQModel write them: (code - zero) * scale.

    qweight  int32 [inputs·bits/32, neurons]     codes along the inputs
    qzeros   int32 [groups, neurons·bits/32]     zero points along the neurons, less 1 but in `gptq_v2`
    scales   [groups, neurons]
    g_idx    int32 [inputs]                      the group of each input; not in order where `desc_act` was used

A stored zero point of all ones stands for 0 in the first version: 1 is added to the field, as AutoGPTQ does.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..embedded import ModelUnavailableError
from .fields import unpack_fields, words_of
from .grids import group_count, group_of, integers_of_groups
from .layer import AGAIN, FLOATS, Checkpoint, Files, QuantizedLayer, SourceWeight, finite
from .settings import integer

BITS = (2, 3, 4, 8)
VERSIONS = ("gptq", "gptq_v2")


def read_gptq(config: Mapping[str, Any], files: Files) -> Checkpoint:
    bits, group = integer(config, "bits", BITS), integer(config, "group_size")
    version = config.get("checkpoint_format", VERSIONS[0])
    if version not in VERSIONS:
        raise ModelUnavailableError(f"its GPTQ layout is {version!r}, and {' and '.join(VERSIONS)} are read")
    layers = files.layers("qweight")
    return Checkpoint({name: _layer(files, name, bits, group, version == VERSIONS[0]) for name in layers})


def _layer(files: Files, name: str, bits: int, stated_group: int, first_version: bool) -> QuantizedLayer:
    parts = files.parts(name)
    words, neurons = parts.take("qweight", "I32", (None, None))
    inputs = words * 32 // bits
    if parts.has("g_idx"):
        (inputs,) = parts.take("g_idx", ("I32", "I64"), (None,))
        parts.take("qweight", "I32", (words_of(inputs, bits), neurons))
    group = group_of(stated_group, inputs)
    groups = group_count(inputs, group)
    parts.take("scales", FLOATS, (groups, neurons))
    parts.take("qzeros", "I32", (groups, words_of(neurons, bits)))
    return parts.layer_of((neurons, inputs), partial(_read, name, bits, group, (neurons, inputs), first_version))


def _read(
    name: str,
    bits: int,
    group: int | None,
    shape: tuple[int, int],
    first_version: bool,
    tensors: Mapping[str, Tensor],
) -> SourceWeight:
    neurons, inputs = shape
    codes = unpack_fields(tensors["qweight"].t(), bits, inputs)
    zeros = unpack_fields(tensors["qzeros"], bits, neurons).t()
    if first_version:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    scales = finite(f"{name}.scales", tensors["scales"]).t()
    owners = _owners(name, tensors["g_idx"], len(tensors["scales"])) if "g_idx" in tensors else None
    return integers_of_groups(codes, zeros, scales, bits, group, owners)


def _owners(name: str, given: Tensor, groups: int) -> Tensor:
    owners = given.to(torch.int64)
    if bool((owners < 0).any()) or bool((owners >= groups).any()):
        raise ModelUnavailableError(f"{name}.g_idx names groups beyond the {groups} that there are: {AGAIN}")
    return owners
