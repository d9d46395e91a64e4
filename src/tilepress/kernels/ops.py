"""Linear layers as an operator of torch's own library, so that `torch.compile` takes a model with them in one graph.

An operator takes tensors and plain values, so a matrix goes in as the number it was registered under, and its codes, so
that torch sees what the result depends on.
"""

import itertools
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor

from ..tiles import PackedMatrix
from .linear import linear

_handles: WeakKeyDictionary[PackedMatrix, int] = WeakKeyDictionary()
_matrices: WeakValueDictionary[int, PackedMatrix] = WeakValueDictionary()
_numbers = itertools.count(1)


def register(matrix: PackedMatrix) -> int:
    """The number by which `torch.ops.tilepress.linear` knows the matrix, for as long as somebody holds it."""
    handle = _handles.get(matrix)
    if handle is None:
        handle = next(_numbers)
        _handles[matrix], _matrices[handle] = handle, matrix
    return handle


@torch.library.custom_op("tilepress::linear", mutates_args=(), device_types="cpu")
def _linear(x: Tensor, codes: Tensor, bias: Tensor | None, handle: int, rows: int, activations: str) -> Tensor:
    matrix = _matrices.get(handle)
    if matrix is None or matrix.codes.shape != codes.shape or matrix.rows != rows:
        raise ValueError(f"no packed matrix of these codes is registered as {handle}; see tilepress.kernels.register")
    return linear(x, matrix, bias, activations=activations)


@_linear.register_fake
def _(x: Tensor, codes: Tensor, bias: Tensor | None, handle: int, rows: int, activations: str) -> Tensor:
    return x.new_empty((*x.shape[:-1], rows))
