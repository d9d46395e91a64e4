"""Linear layers on packed weights, native."""

import torch
from torch import Tensor

from .. import _native
from ..formats import Integer
from ..tiles import PackedMatrix
from ..tiles.packing import code_arrays, native_format, raw_bytes, thread_count

_REAL = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def linear_int8(x: Tensor, matrix: PackedMatrix, bias: Tensor | None = None, *, threads: int | None = None) -> Tensor:
    """x [..., inputs] · Wᵀ (+ bias) with x rounded to int8, a scale a row; integer weights, dense or sparse.

    Returns [..., neurons] in x's type. In float32 the result is, to the bit, that of `reference.linear_int8`, on every
    instruction set and with any number of threads.
    """
    _check(x, matrix, bias)
    rows = x.detach().reshape(-1, matrix.cols).contiguous()
    y = torch.empty(len(rows), matrix.rows, dtype=torch.float32)
    if len(rows):
        shift = torch.empty(0) if bias is None else bias.detach().to(torch.float32).contiguous()
        _native.linear_int8(
            native_format(matrix.format, matrix.layout),
            matrix.rows,
            matrix.cols,
            matrix.sparse,
            *code_arrays(matrix),
            raw_bytes(matrix.scales),
            raw_bytes(matrix.zeros),
            raw_bytes(rows),
            _REAL[rows.dtype],
            len(rows),
            shift,
            y.view(-1),
            thread_count(threads),
        )
    return y.to(x.dtype).view(*x.shape[:-1], matrix.rows)


def _check(x: Tensor, matrix: PackedMatrix, bias: Tensor | None) -> None:
    if not isinstance(matrix.format.element, Integer) or matrix.operand_bits != 8:
        raise ValueError(f"int8 activations want integer weights in 8-bit tiles, not {matrix.format}")
    if x.dtype not in _REAL or x.device.type != "cpu":
        raise TypeError(f"activations are float32, bfloat16 or float16 on the CPU, not {x.dtype} on {x.device}")
    if not x.ndim or x.shape[-1] != matrix.cols:
        raise ValueError(f"activations are [..., {matrix.cols}], not {list(x.shape)}")
    if bias is not None and tuple(bias.shape) != (matrix.rows,):
        raise ValueError(f"the bias is [{matrix.rows}], not {list(bias.shape)}")
