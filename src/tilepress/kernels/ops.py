"""Linear layers and embeddings as operators of torch's own library, for `torch.compile` to take a model in one graph.

An operator takes tensors and plain values, so a matrix goes in as the number it was registered under, and its codes, so
that torch sees what the result depends on.
"""

import itertools
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor

from ..tiles import PackedMatrix
from .embedding import embedding
from .linear import bias_gradient, input_gradient, linear

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
    with torch.no_grad():  # torch keeps the graph of an operator
        return linear(x, _registered(handle, codes, rows), bias, activations=activations)


@_linear.register_fake
def _(x: Tensor, codes: Tensor, bias: Tensor | None, handle: int, rows: int, activations: str) -> Tensor:
    return x.new_empty((*x.shape[:-1], rows))


@torch.library.custom_op("tilepress::linear_gradient", mutates_args=(), device_types="cpu")
def _linear_gradient(gradient: Tensor, codes: Tensor, handle: int, cols: int) -> Tensor:
    """By the inputs: an operator as well, so that a compiled backward pass can call it."""
    return input_gradient(gradient, _registered(handle, codes, gradient.shape[-1]))


@_linear_gradient.register_fake
def _(gradient: Tensor, codes: Tensor, handle: int, cols: int) -> Tensor:
    return gradient.new_empty((*gradient.shape[:-1], cols))


@torch.library.custom_op("tilepress::embedding", mutates_args=(), device_types="cpu")
def _embedding(ids: Tensor, codes: Tensor, handle: int, rows: int, cols: int, dtype: torch.dtype) -> Tensor:
    return embedding(ids, _registered(handle, codes, rows), dtype)


@_embedding.register_fake
def _(ids: Tensor, codes: Tensor, handle: int, rows: int, cols: int, dtype: torch.dtype) -> Tensor:
    return torch.empty((*ids.shape, cols), dtype=dtype, device=ids.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, codes, bias, ctx.handle, _, _ = inputs
    ctx.save_for_backward(codes)
    ctx.cols, ctx.bias_type = x.shape[-1], None if bias is None else bias.dtype


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    (codes,) = ctx.saved_tensors
    by_x = torch.ops.tilepress.linear_gradient(gradient, codes, ctx.handle, ctx.cols)
    by_bias = bias_gradient(gradient).to(ctx.bias_type) if ctx.needs_input_grad[2] else None
    return by_x, None, by_bias, None, None, None


_linear.register_autograd(_gradients, setup_context=_save)


def _registered(handle: int, codes: Tensor, rows: int) -> PackedMatrix:
    matrix = _matrices.get(handle)
    if matrix is None or matrix.codes.shape != codes.shape or matrix.rows != rows:
        raise ValueError(f"no packed matrix of these codes is registered as {handle}; see tilepress.kernels.register")
    return matrix
