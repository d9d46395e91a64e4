"""Rows of packed weights, native."""

import torch
from torch import Tensor

from ..tiles import PackedMatrix
from ..tiles.native import REAL_NAMES, raw_bytes
from ..tiles.packing import thread_count

ID_TYPES = (torch.int64, torch.int32)


def embedding(
    ids: Tensor, matrix: PackedMatrix, dtype: torch.dtype = torch.float32, *, threads: int | None = None
) -> Tensor:
    """The rows `ids` [...] of the weights: [..., cols] of float32, bfloat16 or float16, rounded from what
    `tiles.unpack` gives. Only the blocks of 16 rows that hold them are decoded.

    Raises:
        IndexError: an id is below 0, or not below the number of rows.
    """
    if ids.dtype not in ID_TYPES or not ids.is_cpu:
        raise TypeError(f"ids are int64 or int32 on the CPU, not {ids.dtype} on {ids.device}")
    check_row_type(dtype)
    rows = torch.empty(*ids.shape, matrix.cols, dtype=dtype)
    wanted = ids.to(torch.int64).contiguous().resolve_neg().view(-1).numpy()
    matrix.native.gather(wanted, REAL_NAMES[dtype], raw_bytes(rows), thread_count(threads))
    return rows


def check_row_type(dtype: torch.dtype) -> None:
    """TypeError where rows cannot be of that type."""
    if dtype not in REAL_NAMES:
        raise TypeError(f"an embedding gives float32, bfloat16 or float16, not {dtype}")
