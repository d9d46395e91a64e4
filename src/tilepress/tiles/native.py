"""Formats and arrays in the shape that native code takes them in."""

from functools import lru_cache
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from .. import _native
from ..formats import Element, Float, Integer, Table, WeightFormat
from ..formats.tensors import decode_table, encode_table
from .layout import Layout

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
REAL_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
LINE = 64  # bytes
_NOTHING: Bytes = np.empty(0, np.uint8)
_memory: WeakValueDictionary[int, Bytes] = WeakValueDictionary()  # address → the array that holds the memory there


def native_format(format: WeightFormat, layout: Layout) -> _native.Format:
    """The format as native code takes it."""
    return _make_native_format(format, layout.group or layout.cols)


@lru_cache(maxsize=64)
def _make_native_format(format: WeightFormat, group: int) -> _native.Format:
    element = format.element
    no_floats, no_codes = np.empty(0, np.float32), np.empty(0, np.uint8)
    thresholds, codes = encode_table(element) if isinstance(element, Table) else (no_floats, no_codes)
    small_float = element if isinstance(element, Float) and element.bits <= 8 else None
    return _native.Format(
        rounding=_rounding(element),
        bits=element.bits,
        low=float(element.low) if isinstance(element, Integer) else 0.0,
        high=float(element.high) if isinstance(element, Integer) else 0.0,
        max=element.max,
        emax=element.emax,
        zero_point=format.has_zero_point,
        scale=format.scaling.type if format.scaling else "none",
        group=group,
        mantissa_bits=small_float.mantissa_bits if small_float else 0,
        min_exponent=1 - small_float.bias if small_float else 0,
        thresholds=thresholds,
        codes=codes,
        values=decode_table(element) if element.bits <= 8 else no_floats,
    )


def _rounding(element: Element) -> str:
    if element.bits == 16:
        return element.name
    if isinstance(element, Integer):
        return "integer"
    return "minifloat" if isinstance(element, Float) else "table"


def raw_bytes(array: Tensor | None) -> Bytes:
    """The array's bytes, without a copy unless it is a negated view; none for None.

    By numpy, whose way into native code is ten times shorter, and whose arrays keep torch from resizing the memory.
    """
    return _NOTHING if array is None else array.resolve_neg().view(-1).view(torch.uint8).numpy()


def held_bytes(array: Tensor | None) -> Bytes:
    """`raw_bytes` that stay where they are for as long as this is held: torch moves a tensor's memory and frees what it
    left when the tensor is shared with another process. A copy, unless the tensor came from `empty_bytes`."""
    if array is None or not array.numel():
        return _NOTHING
    memory = _memory.get(array.data_ptr())
    if memory is None or memory.nbytes != array.nbytes:
        memory = _aligned(array.nbytes)
        memory[:] = raw_bytes(array)
    return memory


def empty_bytes(size: int) -> Tensor:
    """uint8 [size], in huge pages where the system offers them; nothing has touched it yet. The memory is numpy's."""
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    memory = _aligned(size)
    _native.advise_huge_pages(memory)
    _memory[memory.ctypes.data] = memory
    return torch.from_numpy(memory)


def _aligned(size: int) -> Bytes:
    """At the beginning of a line."""
    all_bytes = np.empty(size + LINE - 1, np.uint8)
    start = -all_bytes.ctypes.data % LINE
    return all_bytes[start : start + size]


def own_copy(array: Tensor) -> Tensor:
    """A contiguous copy, in huge pages where the system offers them."""
    if not array.numel():
        return array.clone()
    return empty_bytes(array.nbytes).view(array.dtype).view(array.shape).copy_(array)
