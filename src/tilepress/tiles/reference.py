"""Packing and unpacking element by element, straight from the words of `layout`: the specification, and slow."""

import numpy as np
import torch
from torch import Tensor

from ..formats import Quantized, WeightFormat
from .layout import BLOCK_NEURONS, LINE_CODES, SLACK_BYTES, VECTOR_BYTES, Layout, element_index, fields
from .matrix import PackedMatrix, group_rows, layout_of, scale_stream, zero_stream

Codes = list[int]


def pack(quantized: Quantized, format: WeightFormat, keep: Tensor | None, operand_bits: int) -> PackedMatrix:
    """Pack [rows, cols] codes; sparse where `keep` (bool [rows, cols]) is given."""
    rows, cols = quantized.codes.shape
    layout = layout_of(format, rows, cols, operand_bits, keep is not None)
    codes, mask, offsets = bytearray(), bytearray(), [0]
    for block in range(layout.blocks):
        tiles = [_tile(quantized.codes, block, tile, layout) for tile in range(layout.block_tiles)]
        if keep is None:
            for tile in tiles:
                codes += _dense_bytes(tile, layout)
            continue
        masks = [_tile(keep, block, tile, layout) for tile in range(layout.block_tiles)]
        for bits in masks:
            mask += _bit_stream(bits, 1)
        stream = [c for tile, bits in zip(tiles, masks, strict=True) for c, bit in zip(tile, bits, strict=True) if bit]
        codes += _bit_stream(stream, layout.bits)
        offsets.append(len(codes))
    if keep is not None:
        codes += bytes(SLACK_BYTES)
    return PackedMatrix(
        format,
        rows,
        cols,
        operand_bits,
        _array(codes),
        None if keep is None else _array(mask),
        None if keep is None else torch.tensor(offsets, dtype=torch.int64),
        scale_stream(quantized.scales, layout),
        zero_stream(quantized.zeros, layout),
    )


def unpack(matrix: PackedMatrix) -> tuple[Quantized, Tensor | None]:
    """The codes, scales and zero points of a packed matrix, and its mask (bool [rows, cols]) if it is sparse.

    A dropped element has code 0.
    """
    layout = matrix.layout
    codes = np.zeros((layout.rows, layout.cols), np.uint16)
    keep = np.zeros((layout.rows, layout.cols), bool)
    packed = bytes(matrix.codes.numpy())
    for block in range(layout.blocks):
        for index, code in _block_codes(matrix, packed, block).items():
            row, col = _place(index, block, layout)
            if row < layout.rows and col < layout.cols:
                codes[row, col], keep[row, col] = code, True
    return (
        Quantized(_codes_tensor(codes, layout), group_rows(matrix.scales, layout), group_rows(matrix.zeros, layout)),
        torch.from_numpy(keep) if matrix.sparse else None,
    )


def _tile(values: Tensor, block: int, tile: int, layout: Layout) -> Codes:
    """The elements of one tile in index order, 0 past the edge."""
    elements = [0] * layout.tile_codes
    for neuron in range(BLOCK_NEURONS):
        for input in range(layout.tile_inputs):
            row, col = block * BLOCK_NEURONS + neuron, tile * layout.tile_inputs + input
            if row < layout.rows and col < layout.cols:
                elements[element_index(neuron, input, layout.operand_bits)] = int(values[row, col]) & 0xFFFF
    return elements


def _dense_bytes(tile: Codes, layout: Layout) -> bytes:
    if layout.bits == 16:
        return b"".join(code.to_bytes(2, "little") for code in tile)
    out = bytearray()
    for shift, width in fields(layout.bits):
        for first in range(0, layout.tile_codes, LINE_CODES * 8 // width):
            out += bytes(_field_byte(tile, first + j, shift, width) for j in range(VECTOR_BYTES))
    return bytes(out)


def _field_byte(tile: Codes, first: int, shift: int, width: int) -> int:
    parts = range(8 // width)
    return sum((tile[first + part * LINE_CODES] >> shift & (1 << width) - 1) << part * width for part in parts)


def _bit_stream(codes: Codes, bits: int) -> bytes:
    total = sum(code << index * bits for index, code in enumerate(codes))
    return total.to_bytes((len(codes) * bits + 7) // 8, "little")


def _block_codes(matrix: PackedMatrix, packed: bytes, block: int) -> dict[int, int]:
    """Code of each stored element of a block, by its index through all tiles of the block."""
    layout = matrix.layout
    if matrix.mask is None or matrix.offsets is None:
        size = layout.tile_code_bytes
        tiles = range(block * layout.block_tiles, (block + 1) * layout.block_tiles)
        codes = [code for tile in tiles for code in _dense_codes(packed[tile * size : (tile + 1) * size], layout)]
        return dict(enumerate(codes))
    mask = bytes(matrix.mask.view(layout.blocks, -1)[block].numpy())
    indices = [index for index in range(layout.block_codes) if mask[index // 8] >> index % 8 & 1]
    stream = int.from_bytes(packed[int(matrix.offsets[block]) : int(matrix.offsets[block + 1])], "little")
    top = (1 << layout.bits) - 1
    return {index: stream >> place * layout.bits & top for place, index in enumerate(indices)}


def _dense_codes(tile: bytes, layout: Layout) -> Codes:
    if layout.bits == 16:
        return [int.from_bytes(tile[i : i + 2], "little") for i in range(0, len(tile), 2)]
    codes, at = [0] * layout.tile_codes, 0
    for shift, width in fields(layout.bits):
        for first in range(0, layout.tile_codes, LINE_CODES * 8 // width):
            for j in range(VECTOR_BYTES):
                for part in range(8 // width):
                    value = tile[at + j] >> part * width & (1 << width) - 1
                    codes[first + part * LINE_CODES + j] |= value << shift
            at += VECTOR_BYTES
    return codes


def _place(index: int, block: int, layout: Layout) -> tuple[int, int]:
    """Row and column of the matrix of a block's element."""
    tile, element = divmod(index, layout.tile_codes)
    pack = 32 // layout.operand_bits
    tile_row, lane = divmod(element, BLOCK_NEURONS * pack)
    neuron, part = divmod(lane, pack)
    return block * BLOCK_NEURONS + neuron, tile * layout.tile_inputs + tile_row * pack + part


def _array(data: bytearray) -> Tensor:
    return torch.from_numpy(np.frombuffer(bytes(data), np.uint8).copy())


def _codes_tensor(codes: np.ndarray, layout: Layout) -> Tensor:
    return torch.from_numpy(codes.view(np.int16) if layout.bits == 16 else codes.astype(np.uint8))
