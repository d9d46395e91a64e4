"""AWQ checkpoints as AutoAWQ writes them ("gemm"): (code - zero) * scale, 4 bits.

qweight  int32 [inputs, neurons/8]     eight neurons per word, interleaved: 0 2 4 6 1 3 5 7
qzeros   int32 [groups, neurons/8]     the same
scales   [groups, neurons]
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ..embedded import ModelUnavailableError
from .fields import unpack_fields
from .grids import group_count, group_of, integers_of_groups
from .layer import FLOATS, Checkpoint, Files, QuantizedLayer, SourceWeight, finite
from .settings import integer

BITS = 4
PER_WORD = 32 // BITS
PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # the field that has each of eight neurons


def read_awq(config: Mapping[str, Any], files: Files) -> Checkpoint:
    integer(config, "bits", (BITS,))
    version = str(config.get("version", "gemm")).lower()
    if version != "gemm":
        raise ModelUnavailableError(f"its AWQ layout is {version!r}, and only gemm is read: save it as that")
    group = integer(config, "group_size")
    return Checkpoint({name: _layer(files, name, group) for name in files.layers("qweight")})


def _layer(files: Files, name: str, stated_group: int) -> QuantizedLayer:
    parts = files.parts(name)
    inputs, words = parts.take("qweight", "I32", (None, None))
    neurons, group = words * PER_WORD, group_of(stated_group, inputs)
    groups = group_count(inputs, group)
    parts.take("qzeros", "I32", (groups, words))
    parts.take("scales", FLOATS, (groups, neurons))
    return parts.layer_of((neurons, inputs), partial(_read, name, group))


def _read(name: str, group: int | None, tensors: Mapping[str, Tensor]) -> SourceWeight:
    codes, zeros = (_deinterleaved(tensors[part]).t() for part in ("qweight", "qzeros"))
    scales = finite(f"{name}.scales", tensors["scales"]).t()
    return integers_of_groups(codes, zeros, scales, BITS, group, None)


def _deinterleaved(words: Tensor) -> Tensor:
    """uint8 [rows, neurons] of int32 [rows, neurons/8]."""
    rows, count = words.shape
    fields = unpack_fields(words, BITS, count * PER_WORD).view(rows, count, PER_WORD)
    return fields[:, :, list(PLACES)].flatten(1)
