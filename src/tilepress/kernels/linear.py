"""Linear layers on packed weights, native."""

import numpy as np
import torch
from torch import Tensor

from ..formats import Integer
from ..tiles import PackedMatrix
from ..tiles.native import REAL_NAMES, raw_bytes
from ..tiles.packing import thread_count

_NO_BIAS = np.empty(0, np.float32)


def linear_int8(x: Tensor, matrix: PackedMatrix, bias: Tensor | None = None, *, threads: int | None = None) -> Tensor:
    """x [..., inputs] · Wᵀ (+ bias) with x rounded to int8, a scale a row; integer weights, dense or sparse.

    Returns [..., neurons] in x's type. In float32 the result is, to the bit, that of `reference.linear_int8`, on every
    instruction set and with any number of threads.
    """
    _check(x, matrix, bias)
    batch = x.numel() // matrix.cols
    y = torch.empty(*x.shape[:-1], matrix.rows, dtype=torch.float32)
    if batch:
        shift = _NO_BIAS if bias is None else bias.detach().to(torch.float32).contiguous().numpy()
        activations = raw_bytes(x.detach().contiguous())
        matrix.native.linear_int8(
            activations, REAL_NAMES[x.dtype], batch, shift, y.view(-1).numpy(), thread_count(threads)
        )
    return y if x.dtype == torch.float32 else y.to(x.dtype)


def _check(x: Tensor, matrix: PackedMatrix, bias: Tensor | None) -> None:
    if not isinstance(matrix.format.element, Integer) or matrix.operand_bits != 8:
        raise ValueError(f"int8 activations want integer weights in 8-bit tiles, not {matrix.format}")
    if x.dtype not in REAL_NAMES or x.device.type != "cpu":
        raise TypeError(f"activations are float32, bfloat16 or float16 on the CPU, not {x.dtype} on {x.device}")
    if not x.ndim or x.shape[-1] != matrix.cols:
        raise ValueError(f"activations are [..., {matrix.cols}], not {list(x.shape)}")
    if bias is not None and tuple(bias.shape) != (matrix.rows,):
        raise ValueError(f"the bias is [{matrix.rows}], not {list(bias.shape)}")
