"""Packed weights as blocks of GGUF, 32 inputs each: the same integers and scales, or a refusal.

Q4_0   fp16 scale; 4-bit codes less 8         Q8_0   fp16 scale; 8-bit codes
Q4_1   fp16 scale and least weight; codes     MXFP4  E8M0 scale; E2M1 codes
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...formats import E2M1
from ...formats.tensors import scale_values
from ...tiles import PackedMatrix, unpack, unpack_codes
from .errors import no_counterpart
from .integers import Integers, integers_of

NAME = "GGUF"
BLOCK, HALF_BLOCK = 32, 16
Bytes = np.ndarray
HALVES = {"bf16": ("BF16", torch.bfloat16), "fp16": ("F16", torch.float16)}


@dataclass(frozen=True, eq=False)
class Blocks:
    """`type`: GGUF's name. `data`: uint8 [neurons, bytes]."""

    type: str
    data: Bytes


def blocks_of(name: str, matrix: PackedMatrix, rows: Tensor | None = None) -> Blocks:
    """The matrix in GGUF's blocks, its rows in the order `rows`; ExportError where no type of GGUF has it."""
    element, scaling = matrix.format.element, matrix.format.scaling
    if element.name in HALVES and scaling is None:
        type, dtype = HALVES[element.name]
        return Blocks(type, _as_bytes(_ordered(unpack(matrix, dtype), rows)))
    _refuse_odd_rows(name, matrix)
    integers = integers_of(matrix)
    if integers is not None:
        return _integer_blocks(name, matrix, integers, rows)
    if element == E2M1 and scaling is not None and (scaling.group, scaling.type) == (BLOCK, "e8m0"):
        quantized, _ = unpack_codes(matrix)
        assert quantized.scales is not None
        data = _joined(_ordered(quantized.scales, rows).unsqueeze(-1), _nibbles(_ordered(quantized.codes, rows)))
        return Blocks("MXFP4", data)
    why = "zero points between the codes" if matrix.format.has_zero_point else f"it has no blocks of {element}"
    raise no_counterpart(name, matrix.format, NAME, why, "int4:g32" if element.bits <= 4 else "int8:g32")


def _integer_blocks(name: str, matrix: PackedMatrix, integers: Integers, rows: Tensor | None) -> Blocks:
    inputs = matrix.cols
    scales = _halves(_per_block(integers.scales, inputs, integers.group))
    values, nearest = integers.codes, "int4:g32:fp16" if integers.element.bits <= 4 else "int8:g32:fp16"
    if scales is None:
        raise no_counterpart(name, matrix.format, NAME, "scales that fp16 does not have", nearest)
    if integers.zeros is not None:
        values = integers.codes - integers.zeros.repeat_interleave(integers.group or inputs, 1)[:, :inputs]
    least, most = map(int, values.aminmax())
    order, stored = _ordered(values, rows), _ordered(scales, rows).unsqueeze(-1)
    if least >= -8 and most < 8:
        return Blocks("Q4_0", _joined(stored, _nibbles((order + 8).to(torch.uint8))))
    if integers.zeros is not None and integers.element.bits <= 4:
        minima = _minima(scales, _per_block(integers.zeros, inputs, integers.group))
        if minima is not None:
            codes = _nibbles(_ordered(integers.codes, rows).to(torch.uint8))
            return Blocks("Q4_1", _joined(stored, _ordered(minima, rows).unsqueeze(-1), codes))
    if least >= -128 and most < 128:
        return Blocks("Q8_0", _joined(stored, order.to(torch.int8).view(len(order), -1, BLOCK)))
    raise no_counterpart(name, matrix.format, NAME, "codes further than 8 bits from their zero point", nearest)


def _refuse_odd_rows(name: str, matrix: PackedMatrix) -> None:
    group = matrix.format.scaling.group if matrix.format.scaling else None
    if matrix.cols % BLOCK:
        raise no_counterpart(name, matrix.format, NAME, f"rows of {matrix.cols} inputs, no multiple of 32", "bf16")
    if group is not None and group % BLOCK:
        nearest = "int4:g32" if matrix.format.element.bits <= 4 else "int8:g32"
        raise no_counterpart(name, matrix.format, NAME, f"groups of {group} inputs, no multiple of 32", nearest)


def _per_block(per_group: Tensor, inputs: int, group: int | None) -> Tensor:
    """[neurons, groups] spread to [neurons, blocks]."""
    return per_group.repeat_interleave((group or inputs) // BLOCK, 1)[:, : inputs // BLOCK]


def _halves(scales: Tensor) -> Tensor | None:
    """The same numbers in fp16, where it has them."""
    values = scale_values(scales)
    halves = values.to(torch.float16)
    return halves if torch.equal(halves.to(torch.float32), values) else None


def _minima(scales: Tensor, zeros: Tensor) -> Tensor | None:
    return _halves(-scales.to(torch.float32) * zeros.to(torch.float32))


def _ordered(tensor: Tensor, rows: Tensor | None) -> Tensor:
    return tensor if rows is None else tensor[rows]


def _nibbles(codes: Tensor) -> Tensor:
    """uint8 [neurons, inputs] to [neurons, blocks, 16]: the block's first half in the low halves of bytes."""
    halves = codes.view(len(codes), -1, 2, HALF_BLOCK)
    return halves[:, :, 0] | halves[:, :, 1] << 4


def _joined(*parts: Tensor) -> Bytes:
    """[neurons, blocks, …] each, side by side within a block, as bytes [neurons, bytes]."""
    data = torch.cat([part.contiguous().view(torch.uint8) for part in parts], -1)
    return data.flatten(1).numpy()


def _as_bytes(tensor: Tensor) -> Bytes:
    return tensor.contiguous().view(torch.uint8).numpy()
