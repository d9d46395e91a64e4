"""Parts of a packed matrix: the same codes, scales and zero points, so the same weights to the bit.

Rows that fill blocks, and columns of a dense matrix that fill tiles and groups, are taken as bytes; anything else is
unpacked to codes and packed again. A part that begins within a group of scales has smaller groups, with the same
scales.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..formats import Quantized, WeightFormat
from ..formats.weight import GROUP_STEP
from .layout import BLOCK_NEURONS, SLACK_BYTES, Layout
from .matrix import PackedMatrix
from .native import own_copy
from .packing import pack_codes, unpack_codes

Range = tuple[int, int]  # the first one, and the one after the last


def cut_rows(matrix: PackedMatrix, *ranges: Range) -> PackedMatrix:
    """The rows of each range, one range after the other."""
    _check(matrix.rows, ranges)
    if all(first % BLOCK_NEURONS == 0 and (end - first) % BLOCK_NEURONS == 0 for first, end in ranges):
        return _blocks(matrix, ranges)
    quantized, mask = unpack_codes(matrix)
    codes = torch.cat([quantized.codes[first:end] for first, end in ranges])
    cut = Quantized(codes, _rows(quantized.scales, ranges), _rows(quantized.zeros, ranges))
    return _packed(cut, _rows(mask, ranges), matrix.format, matrix)


def cut_cols(matrix: PackedMatrix, first: int, end: int) -> PackedMatrix:
    """These columns. ValueError if they begin where no group of scales can."""
    _check(matrix.cols, [(first, end)])
    layout = matrix.layout
    if not matrix.sparse and _fills_tiles(layout, first, end) and (layout.group is None or first % layout.group == 0):
        return _tiles(matrix, first, end)
    quantized, mask = unpack_codes(matrix)
    format, scales, zeros = _regrouped(matrix.format, quantized, first, end)
    cut = Quantized(quantized.codes[:, first:end].contiguous(), scales, zeros)
    return _packed(cut, None if mask is None else mask[:, first:end], format, matrix)


def _check(count: int, ranges: Sequence[Range]) -> None:
    for first, end in ranges:
        if not 0 <= first < end <= count:
            raise ValueError(f"a part begins at 0 or later, and ends after that, at {count} at most: not {first}:{end}")


def _rows(array: Tensor | None, ranges: Sequence[Range]) -> Tensor | None:
    return None if array is None else torch.cat([array[first:end] for first, end in ranges])


def _packed(cut: Quantized, mask: Tensor | None, format: WeightFormat, like: PackedMatrix) -> PackedMatrix:
    return pack_codes(cut, format, mask=mask, operand_bits=like.operand_bits)


def _blocks(matrix: PackedMatrix, ranges: Sequence[Range]) -> PackedMatrix:
    blocks = [(first // BLOCK_NEURONS, end // BLOCK_NEURONS) for first, end in ranges]
    count, rows = matrix.layout.blocks, sum(end - first for first, end in ranges)
    codes, offsets = (
        (_rows(matrix.codes.view(count, -1), blocks), None)
        if matrix.offsets is None
        else _sparse_codes(matrix.codes, matrix.offsets, blocks)
    )
    mask = None if matrix.mask is None else _rows(matrix.mask.view(count, -1), blocks)
    arrays = [_flat(codes), _flat(mask), offsets, _rows(matrix.scales, blocks), _rows(matrix.zeros, blocks)]
    return _owned(matrix, rows, matrix.cols, arrays)


def _sparse_codes(codes: Tensor, offsets: Tensor, blocks: Sequence[Range]) -> tuple[Tensor, Tensor]:
    """Their codes, and where each block's begin."""
    parts = [codes[offsets[first] : offsets[end]] for first, end in blocks]
    sizes = [offsets[first : end + 1].diff() for first, end in blocks]
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), *sizes]).cumsum(0)
    return torch.cat([*parts, torch.zeros(SLACK_BYTES, dtype=torch.uint8)]), starts


def _fills_tiles(layout: Layout, first: int, end: int) -> bool:
    return first % layout.tile_inputs == 0 and (end % layout.tile_inputs == 0 or end == layout.cols)


def _tiles(matrix: PackedMatrix, first: int, end: int) -> PackedMatrix:
    layout = matrix.layout
    tiles = matrix.codes.view(layout.blocks, layout.block_tiles, layout.tile_code_bytes)
    codes = tiles[:, first // layout.tile_inputs : -(-end // layout.tile_inputs)]
    scaling = matrix.format.scaling
    group = layout.cols if scaling is None else scaling.group_inputs(layout.cols)
    scales, zeros = (
        None if array is None else array[:, first // group : -(-end // group)]
        for array in (matrix.scales, matrix.zeros)
    )
    return _owned(matrix, matrix.rows, end - first, [_flat(codes), None, None, scales, zeros])


def _regrouped(
    format: WeightFormat, quantized: Quantized, first: int, end: int
) -> tuple[WeightFormat, Tensor | None, Tensor | None]:
    """The format of columns first … end - 1, their scales and zero points."""
    scaling = format.scaling
    if scaling is None or scaling.group is None:
        return format, quantized.scales, quantized.zeros
    group = math.gcd(scaling.group, first)
    if group % GROUP_STEP:
        raise ValueError(f"a part of a {format} matrix cannot begin at input {first}, within {GROUP_STEP} of a group")
    scales, zeros = (
        None
        if array is None
        else array.repeat_interleave(scaling.group // group, 1)[:, first // group : -(-end // group)].contiguous()
        for array in (quantized.scales, quantized.zeros)
    )
    return replace(format, scaling=replace(scaling, group=group)), scales, zeros


def _flat(array: Tensor | None) -> Tensor | None:
    return None if array is None else array.reshape(-1)


def _owned(matrix: PackedMatrix, rows: int, cols: int, arrays: Sequence[Tensor | None]) -> PackedMatrix:
    """With copies of codes, mask, offsets, scales and zeros: what they were cut from can go."""
    codes, *others = (None if array is None else own_copy(array) for array in arrays)
    assert codes is not None
    return PackedMatrix(matrix.format, rows, cols, matrix.operand_bits, codes, *others)
