"""Linear layers on packed weights, native."""

from functools import lru_cache

import torch
from torch import Tensor

from ..formats import BFP, FormatError, Integer, parse
from ..tiles import PackedMatrix
from ..tiles.native import REAL_NAMES
from ..tiles.packing import thread_count

WIDEST_MANTISSA = 8


def linear(
    x: Tensor,
    matrix: PackedMatrix,
    bias: Tensor | None = None,
    *,
    activations: str = "float",
    threads: int | None = None,
) -> Tensor:
    """x [..., inputs] · Wᵀ (+ bias): [..., neurons] in x's type, float32, bfloat16 or float16.

    Args:
        bias: [neurons].
        activations: "int8" rounds x to int8 with a scale a row, "bfp:gN:mN" to block floating point of at most 8 bits;
            both want integer weights, and give to the bit what `reference.linear` gives, on every instruction set and
            with any number of threads.
        threads: as many as torch uses if not given.
    """
    group, mantissa = integer_format(activations)
    _check(x, matrix, bias)
    x = x.contiguous()
    y = torch.empty(*x.shape[:-1], matrix.rows, dtype=x.dtype)
    batch = x.numel() // matrix.cols
    if batch:
        shift = None if bias is None else bias.detach().to(torch.float32).contiguous()
        address = 0 if shift is None else shift.data_ptr()
        pointers = (x.data_ptr(), REAL_NAMES[x.dtype], batch, address, y.data_ptr())
        matrix.native.linear_integer(*pointers, group, mantissa, thread_count(threads))
    return y


@lru_cache(maxsize=64)
def integer_format(activations: str) -> tuple[int, int]:
    """Group and mantissa of the integers that activations become; 0, 0 for int8 with a scale a row."""
    if activations == "int8":
        return 0, 0
    format = parse(activations)
    if not isinstance(format, BFP) or format.mantissa > WIDEST_MANTISSA:
        raise FormatError(f"activations are int8 or bfp:gN:mN with at most {WIDEST_MANTISSA} bits, not {activations}")
    return format.group, format.mantissa


def _check(x: Tensor, matrix: PackedMatrix, bias: Tensor | None) -> None:
    if not isinstance(matrix.format.element, Integer) or matrix.operand_bits != 8:
        raise ValueError(f"integer activations want integer weights in 8-bit tiles, not {matrix.format}")
    if x.dtype not in REAL_NAMES or not x.is_cpu:
        raise TypeError(f"activations are float32, bfloat16 or float16 on the CPU, not {x.dtype} on {x.device}")
    if not x.ndim or x.shape[-1] != matrix.cols:
        raise ValueError(f"activations are [..., {matrix.cols}], not {list(x.shape)}")
    if bias is not None and tuple(bias.shape) != (matrix.rows,):
        raise ValueError(f"the bias is [{matrix.rows}], not {list(bias.shape)}")
