"""A packed matrix: its format, its shape and the arrays that `layout` describes."""

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _native
from .._safetensors import DamagedError
from ..formats import WeightFormat
from ..formats.floats import BF16
from ..formats.tensors import E8M0_ONE, SCALE_DTYPES
from ..formats.zero_points import whole, zero_steps
from .layout import BLOCK_NEURONS, SLACK_BYTES, Layout, element_order
from .native import held_bytes, native_format, own_copy, raw_bytes


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """[rows, cols] weights as packed tiles. Making one checks that the arrays agree with each other.

    `codes` uint8; sparse ones also have `mask` uint8 and `offsets` int64 [blocks + 1]; scaled ones `scales`
    [blocks, groups, 16] in the format's scale type (E8M0 as uint8), and `zeros` uint8 beside a zero point.
    """

    format: WeightFormat
    rows: int
    cols: int
    operand_bits: int
    codes: Tensor
    mask: Tensor | None = None
    offsets: Tensor | None = None
    scales: Tensor | None = None
    zeros: Tensor | None = None

    def __post_init__(self) -> None:
        _check(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """To be pickled without what native code has of it; a copy is checked as it is made.

        Arrays go as bytes: multiprocessing would move tensors into shared memory, from under native code. As tensors
        with the old protocol that torch.save asks for, which has no bytes.
        """
        arrays = {name: (raw_bytes(a) if protocol > 2 else a, a.dtype, a.shape) for name, a in self.streams.items()}
        return _unpickled, (self.format, self.rows, self.cols, self.operand_bits, arrays)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.rows, self.cols)

    @property
    def sparse(self) -> bool:
        return self.mask is not None

    @property
    def layout(self) -> Layout:
        return layout_of(self.format, self.rows, self.cols, self.operand_bits, self.sparse)

    @property
    def streams(self) -> dict[str, Tensor]:
        """The arrays there are, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    @cached_property
    def native(self) -> _native.Matrix:
        """The matrix as kernels take it; checked once more, by native code, on first use."""
        groups = (held_bytes(self.scales), held_bytes(self.zeros))
        offsets = torch.empty(0, dtype=torch.int64) if self.offsets is None else self.offsets
        arrays = (held_bytes(self.codes), held_bytes(self.mask), offsets, *groups)
        format = native_format(self.format, self.layout)
        return _native.Matrix(format, self.rows, self.cols, self.operand_bits, self.sparse, *arrays)

    @property
    def nbytes(self) -> int:
        """All bytes stored: codes, mask, offsets, scales and zero points, and the padding between and after them."""
        return sum(array.nbytes for array in self.streams.values())

    @property
    def padding_bytes(self) -> int:
        """How many of `nbytes` only fill up tiles, blocks and bytes: less than 1 % of all but small matrices."""
        return self.nbytes - math.ceil(self._content_bits / 8)

    @cached_property
    def nonzeros(self) -> int:
        """Weights that have a code; the matrix' own, never padding."""
        return self.rows * self.cols if self.mask is None else int(_popcounts(self.mask).sum())

    @property
    def density(self) -> float:
        return self.nonzeros / (self.rows * self.cols)

    @property
    def bits_per_weight(self) -> float:
        """Bits of code, mask, offset, scale and zero point that a weight costs; padding is not counted."""
        return self._content_bits / (self.rows * self.cols)

    @property
    def compression_factor(self) -> float:
        """How many times smaller than BF16."""
        return BF16.bits / self.bits_per_weight

    @property
    def _content_bits(self) -> int:
        per_group = self.format.group_bits * self.layout.groups * self.rows
        if self.offsets is None:
            return self.rows * self.cols * self.layout.bits + per_group
        return self.nonzeros * self.layout.bits + self.rows * self.cols + self.offsets.nbytes * 8 + per_group

    def __repr__(self) -> str:
        sparsity = f", density {self.density:.3f}" if self.sparse else ""
        return f"PackedMatrix({self.format}, {self.rows}×{self.cols}{sparsity}, {self.nbytes} bytes)"


def _unpickled(format: WeightFormat, rows: int, cols: int, operand_bits: int, arrays: dict[str, Any]) -> PackedMatrix:
    own = {name: own_copy(_writable(a).view(dtype).view(shape)) for name, (a, dtype, shape) in arrays.items()}
    return PackedMatrix(format, rows, cols, operand_bits, **own)


def _writable(array: Any) -> Tensor:
    """Ray maps arrays that nobody may write to, and torch warns of those."""
    return torch.as_tensor(array if isinstance(array, Tensor) or array.flags.writeable else array.copy())


def layout_of(format: WeightFormat, rows: int, cols: int, operand_bits: int, sparse: bool) -> Layout:
    group = format.scaling.group_inputs(cols) if format.scaling else None
    return Layout(rows, cols, format.element.bits, operand_bits, sparse, group)


def scale_stream(scales: Tensor | None, layout: Layout) -> Tensor | None:
    """Scales [rows, groups] to [blocks, groups, 16]."""
    if scales is None:
        return None
    return _group_stream(scales, layout, fill=E8M0_ONE if scales.dtype == torch.uint8 else 1)


def zero_stream(zeros: Tensor | None, layout: Layout) -> Tensor | None:
    """Zero points [rows, groups] to [blocks, groups, 16]."""
    return None if zeros is None else _group_stream(zeros, layout, fill=0)


def group_rows(stream: Tensor | None, layout: Layout) -> Tensor | None:
    """[blocks, groups, 16] back to [rows, groups]."""
    if stream is None:
        return None
    return stream.transpose(1, 2).reshape(layout.blocks * BLOCK_NEURONS, layout.groups)[: layout.rows].contiguous()


def _group_stream(per_group: Tensor, layout: Layout, fill: int) -> Tensor:
    padded = torch.full((layout.blocks * BLOCK_NEURONS, layout.groups), fill, dtype=per_group.dtype)
    padded[: layout.rows] = per_group
    return padded.view(layout.blocks, BLOCK_NEURONS, layout.groups).transpose(1, 2).contiguous()


def _check(matrix: PackedMatrix) -> None:
    """Everything native code relies on, before it sees a pointer."""
    layout, format = matrix.layout, matrix.format
    scale_shape = layout.scale_shape if format.scaling else None
    _check_array("mask", matrix.mask, torch.uint8, (layout.mask_bytes,) if matrix.sparse else None)
    _check_array("offsets", matrix.offsets, torch.int64, (layout.blocks + 1,) if matrix.sparse else None)
    _check_array("scales", matrix.scales, SCALE_DTYPES[format.scaling.type] if format.scaling else None, scale_shape)
    _check_array("zeros", matrix.zeros, torch.uint8, scale_shape if format.has_zero_point else None)
    if matrix.mask is None or matrix.offsets is None:
        _check_array("codes", matrix.codes, torch.uint8, (layout.dense_code_bytes,))
    else:
        _check_sparse(matrix.codes, matrix.mask, matrix.offsets, layout)
    if matrix.zeros is not None and matrix.sparse and not whole(matrix.zeros, format.element):
        steps = zero_steps(format.element)
        raise DamagedError(f"zero points of a sparse {format} matrix must be whole, multiples of {steps} as stored")


def _check_array(name: str, array: Tensor | None, dtype: torch.dtype | None, shape: tuple[int, ...] | None) -> None:
    if (array is None) != (shape is None):
        raise DamagedError(f"{name} must {'be there' if shape else 'not be there'} in this format")
    if array is None:
        return
    if array.dtype != dtype or tuple(array.shape) != shape:
        raise DamagedError(f"{name} must be {dtype} {list(shape or ())}, not {array.dtype} {list(array.shape)}")
    if array.device.type != "cpu" or not array.is_contiguous() or array.is_neg():
        raise DamagedError(f"{name} must be contiguous on the CPU, and no negated view")


def _check_sparse(codes: Tensor, mask: Tensor, offsets: Tensor, layout: Layout) -> None:
    starts = offsets.numpy()
    if starts[0] != 0 or bool((np.diff(starts) < 0).any()):
        raise DamagedError("offsets must start at 0 and never descend")
    _check_array("codes", codes, torch.uint8, (int(starts[-1]) + SLACK_BYTES,))
    nonzeros = _popcounts(mask).reshape(layout.blocks, -1).sum(1, dtype=np.int64)
    wrong = np.flatnonzero(np.array([*map(layout.stream_bytes, nonzeros.tolist())]) != np.diff(starts))
    if wrong.size:
        raise DamagedError(f"mask and offsets disagree about the codes of block {int(wrong[0])}")
    if _padding_is_kept(mask, layout):
        raise DamagedError("mask keeps an element outside the matrix")
    if bool(codes[int(starts[-1]) :].any()):
        raise DamagedError(f"codes must end in {SLACK_BYTES} zero bytes")


def _popcounts(mask: Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Set bits in each eight bytes of the mask, whose length is a multiple of 64."""
    return np.bitwise_count(mask.numpy().view(np.uint64))


def _padding_is_kept(mask: Tensor, layout: Layout) -> bool:
    """Whether a bit is set past the last row (in the last block) or past the last column (in each last tile)."""
    tiles = mask.view(layout.blocks, layout.block_tiles, layout.tile_mask_bytes).numpy()
    order = element_order(layout.operand_bits)
    rows_left = layout.rows - (layout.blocks - 1) * BLOCK_NEURONS
    cols_left = layout.cols - (layout.block_tiles - 1) * layout.tile_inputs
    if rows_left == BLOCK_NEURONS and cols_left == layout.tile_inputs:
        return False  # there is no padding
    last_block, last_tiles = (np.unpackbits(part, axis=1, bitorder="little") for part in (tiles[-1], tiles[:, -1]))
    return bool(last_block[:, order[rows_left:].ravel()].any() or last_tiles[:, order[:, cols_left:].ravel()].any())
