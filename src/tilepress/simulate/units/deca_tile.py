"""Compressed tiles as DECA's loaders see them: codes, bitmask and scales, and the 64-byte lines they lie in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...formats import Quantized
from ...formats.tensors import scale_values
from ...formats.weight import SCALE_BITS
from ...formats.zero_points import ZERO_POINT_BITS, zero_values
from ...hardware.machine import TILE_WEIGHTS
from ...tiles import PackedMatrix, unpack_codes
from ...tiles.layout import BLOCK_NEURONS, element_order
from .deca_arithmetic import Bools, Floats
from .halves import Integers

LINE_BITS = 512
ENTRY_BITS = 16  # table 3: an entry of the scale factor queue
OPERAND_BITS = 16  # section 6: output tiles are bf16
TILE_INPUTS = TILE_WEIGHTS // BLOCK_NEURONS
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, eq=False)
class CompressedTile:
    """One tile, its 512 elements in index order (`tiles.layout`).

    `codes` of the elements kept; `mask` [512], None if dense; `scales` and `zeros` [512], None if the format has none.
    `first_bit`: where in their first line the codes begin. `group_lines`: lines of scales and zero points;
    `group_entries`: what they take in the scale factor queue.
    """

    bits: int
    codes: Integers
    mask: Bools | None = None
    scales: Floats | None = None
    zeros: Floats | None = None
    first_bit: int = 0
    group_lines: int = 0
    group_entries: int = 0

    @property
    def kept(self) -> Bools:
        """[512]: the bitmask, or ones."""
        return np.ones(TILE_WEIGHTS, bool) if self.mask is None else self.mask

    @property
    def mask_lines(self) -> int:
        return 0 if self.mask is None else TILE_WEIGHTS // LINE_BITS

    @property
    def lines(self) -> int:
        """All that a loader requests: bitmask, scales, zero points, then codes."""
        return self.lines_before(len(self.codes))

    @property
    def code_lines(self) -> int:
        return self.lines - self.mask_lines - self.group_lines

    def lines_before(self, codes: int) -> int:
        """Lines that must have come before the first `codes` codes, and all else, can be read."""
        end = self.first_bit + codes * self.bits
        return self.mask_lines + self.group_lines + (-(-end // LINE_BITS) if codes else 0)

    def lines_done(self, codes: int) -> int:
        """Lines of codes that nothing needs any more once `codes` codes have been read."""
        return (self.first_bit + codes * self.bits) // LINE_BITS

    def windows(self, width: int) -> list[int]:
        """Codes that each vector operation takes."""
        return [int(count) for count in self.kept.reshape(-1, width).sum(1)]


def compressed_tiles(matrix: PackedMatrix) -> Iterator[CompressedTile]:
    """All tiles of a matrix, block after block."""
    if matrix.operand_bits != OPERAND_BITS:
        raise ValueError(
            f"DECA puts out bf16 tiles of 16 × {TILE_INPUTS}; this matrix has 8-bit operands: pack it with "
            f"operand_bits={OPERAND_BITS}"
        )
    quantized, kept = unpack_codes(matrix)
    scales, zeros = _per_weight(matrix, quantized)
    for block in range(matrix.layout.blocks):
        before = 0
        for tile in range(matrix.layout.block_tiles):
            mask = _cut(kept, np.bool_, block, tile)
            codes = _cut(quantized.codes, np.int64, block, tile)
            assert codes is not None
            stored = codes if mask is None else codes[mask]
            bits = matrix.format.element.bits
            first = (_code_start(matrix, block) + before * bits) % LINE_BITS
            of_scales, of_zeros = (_cut(each, np.float32, block, tile) for each in (scales, zeros))
            lines, entries = _group_sizes(matrix, block, tile)
            yield CompressedTile(bits, stored, mask, of_scales, of_zeros, first, lines, entries)
            before += len(stored)


def _code_start(matrix: PackedMatrix, block: int) -> int:
    """The bit at which a block's codes begin."""
    if matrix.offsets is not None:
        return 8 * int(matrix.offsets[block])
    return 8 * matrix.layout.tile_code_bytes * matrix.layout.block_tiles * block


def _group_sizes(matrix: PackedMatrix, block: int, tile: int) -> tuple[int, int]:
    """Lines of scales and zero points that a tile needs, and entries of the queue."""
    scaling, group = matrix.format.scaling, matrix.layout.group
    if scaling is None or group is None:
        return 0, 0
    last_input = min((tile + 1) * TILE_INPUTS, matrix.cols) - 1
    first, last = (block * matrix.layout.groups + input // group for input in (tile * TILE_INPUTS, last_input))
    sizes = [SCALE_BITS[scaling.type], *([ZERO_POINT_BITS] if matrix.format.has_zero_point else [])]
    lines = sum(_touched(BLOCK_NEURONS * first * bits, BLOCK_NEURONS * (last + 1) * bits) for bits in sizes)
    return lines, BLOCK_NEURONS * (last + 1 - first) * sum(-(-bits // ENTRY_BITS) for bits in sizes)


def _touched(first_bit: int, end_bit: int) -> int:
    return -(-end_bit // LINE_BITS) - first_bit // LINE_BITS


def _per_weight(matrix: PackedMatrix, quantized: Quantized) -> tuple[Tensor | None, Tensor | None]:
    """Scale and zero point of each weight, [rows, cols]."""
    group = matrix.layout.group
    if quantized.scales is None or group is None:
        return None, None
    of_input = torch.arange(matrix.cols) // group
    scales = scale_values(quantized.scales)[:, of_input]
    if quantized.zeros is None:
        return scales, None
    return scales, zero_values(quantized.zeros, matrix.format.element)[:, of_input]


def _cut(whole: Tensor | None, dtype: type[_Number], block: int, tile: int) -> NDArray[_Number] | None:
    """The 512 elements of a tile in index order, zeros past the edge."""
    if whole is None:
        return None
    rows = slice(block * BLOCK_NEURONS, (block + 1) * BLOCK_NEURONS)
    part = whole[rows, tile * TILE_INPUTS : (tile + 1) * TILE_INPUTS].numpy()
    padded = np.zeros((BLOCK_NEURONS, TILE_INPUTS), dtype)
    padded[: part.shape[0], : part.shape[1]] = part
    elements = np.empty(TILE_WEIGHTS, dtype)
    elements[element_order(OPERAND_BITS).ravel()] = padded.ravel()
    return elements


def placed(elements: Floats) -> Tensor:
    """bf16 [16 neurons, 32 inputs] of values in index order."""
    return torch.from_numpy(elements[element_order(OPERAND_BITS)]).to(torch.bfloat16)
