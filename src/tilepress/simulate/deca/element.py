"""The processing element as a function: the bits of the tile that it puts out, vector operation by vector operation.

Its tables hold bf16 values and its multipliers give bf16, so a tile is `tiles.unpack` rounded to bf16, to the bit,
for every format whose values bf16 holds; of other tables (nf4), the product with the rounded value. DECA as published
has no zero points: they are taken off before scaling here, as an adder a lane would.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...formats import BF16, Element, Quantized
from ...formats.tensors import decode_table, scale_values
from ...formats.zero_points import zero_values
from ...roofsurface import Deca
from ...tiles import PackedMatrix, unpack_codes
from ...tiles.layout import BLOCK_NEURONS, element_order

TABLE_ENTRIES, SUB_TABLES = 256, 4
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Decompressed:
    """`values`: bf16 [16 neurons, inputs of a tile]; `cycles` that each vector operation spent looking codes up."""

    values: Tensor
    cycles: list[int]


class ProcessingElement:
    """One engine, set up for the format of `matrix`."""

    def __init__(self, matrix: PackedMatrix, engine: Deca | None = None) -> None:
        element = matrix.format.element
        if element.bits > 8 and element != BF16:
            raise ValueError(f"DECA takes codes of up to 8 bits, or bf16, not {element}")
        self.engine, self.matrix = engine or Deca(), matrix
        self.lookups = self.engine.lookups(element.bits)
        self.tables = fill_tables(element) if element.bits <= 8 else None
        self._quantized, self._kept = unpack_codes(matrix)

    def tile(self, block: int, tile: int) -> Decompressed:
        """Decompress one tile of a block of 16 neurons, `width` weights at a time."""
        queue, mask = self._loaded(block, tile)
        scales, zeros = self._groups(block, tile)
        out, cycles, head, width = np.zeros(mask.size, np.float32), [], 0, self.engine.width
        for first in range(0, mask.size, width):
            bits = mask[first : first + width]
            window = int(bits.sum())  # POPCNT
            sparse = self.dequantise(queue[head : head + window])
            head += window
            dense = expand(sparse, bits)
            lanes = slice(first, first + width)
            out[lanes] = _bf16(np.where(bits, (dense - zeros[lanes]) * scales[lanes], np.float32(0)))
            cycles.append(max(-(-window // self.lookups), 1))
        placed = out[element_order(self.matrix.operand_bits)]
        return Decompressed(torch.from_numpy(placed).to(torch.bfloat16), cycles)

    def dequantise(self, codes: NDArray[np.int64]) -> Floats:
        """Values of codes, `lookups` a cycle; narrow codes are looked up in all parts of a table at once."""
        if self.tables is None:
            patterns = torch.from_numpy(codes.astype(np.int16)).view(torch.bfloat16)
            return np.asarray(patterns.to(torch.float32).numpy())
        bits = self.matrix.format.element.bits
        ports = SUB_TABLES if bits <= 6 else 2 if bits == 7 else 1
        lane = np.arange(codes.size) % ports
        entry = codes + lane * (TABLE_ENTRIES // ports)
        return np.asarray(self.tables.reshape(-1)[entry])

    def _loaded(self, block: int, tile: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """What a loader puts into the queues: the codes that are stored, and the bitmask, both in element order."""
        codes = self._cut(self._quantized.codes, block, tile)
        mask = torch.ones_like(codes, dtype=torch.bool) if self._kept is None else self._cut(self._kept, block, tile)
        ordered, order = mask.numpy()[self._places], codes.numpy()[self._places]
        return order[ordered].astype(np.int64), ordered

    def _groups(self, block: int, tile: int) -> tuple[Floats, Floats]:
        """Scale and zero point of each element of a tile: 1 and 0 where the format has none."""
        scaling, shape = self.matrix.format.scaling, (self.matrix.rows, self.matrix.cols)
        if scaling is None:
            return np.ones(self._size, np.float32), np.zeros(self._size, np.float32)
        of_input = torch.arange(shape[1]) // scaling.group_inputs(shape[1])
        return self._spread(self._quantized, of_input, block, tile)

    def _spread(self, quantized: Quantized, of_input: Tensor, block: int, tile: int) -> tuple[Floats, Floats]:
        assert quantized.scales is not None
        scales = self._cut(scale_values(quantized.scales)[:, of_input], block, tile).numpy()[self._places]
        if quantized.zeros is None:
            return scales, np.zeros(self._size, np.float32)
        zeros = zero_values(quantized.zeros, self.matrix.format.element)
        return scales, self._cut(zeros[:, of_input], block, tile).numpy()[self._places]

    @property
    def _size(self) -> int:
        return self.matrix.layout.tile_codes

    @property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Neuron and input of each element, in element order."""
        order = element_order(self.matrix.operand_bits)
        inverse = np.argsort(order.ravel())
        return inverse // order.shape[1], inverse % order.shape[1]

    def _cut(self, whole: Tensor, block: int, tile: int) -> Tensor:
        """[16, inputs of a tile], zeros past the edge."""
        inputs = self.matrix.layout.tile_inputs
        part = whole[block * BLOCK_NEURONS : (block + 1) * BLOCK_NEURONS, tile * inputs : (tile + 1) * inputs]
        padded = torch.zeros(BLOCK_NEURONS, inputs, dtype=whole.dtype)
        padded[: part.shape[0], : part.shape[1]] = part
        return padded


def fill_tables(element: Element) -> Floats:
    """[4, 64]: one big table as it is filled for a format: its values as bf16, as often as they fit. Of less than six
    bits some entries are never read."""
    values = _bf16(np.asarray(decode_table(element)))
    copies = TABLE_ENTRIES // max(values.size, TABLE_ENTRIES // SUB_TABLES)
    part = np.zeros(TABLE_ENTRIES // copies, np.float32)
    part[: values.size] = values
    return np.tile(part, copies).reshape(SUB_TABLES, -1)


def expand(values: Floats, bits: NDArray[np.bool_]) -> Floats:
    """The crossbar: value n goes to the lane of the n-th set bit, as a parallel prefix sum finds it; else zeros."""
    index = np.cumsum(bits) - 1
    return np.where(bits, values[np.maximum(index, 0)] if values.size else 0, 0).astype(np.float32)


def _bf16(values: Floats) -> Floats:
    return np.asarray(torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16).to(torch.float32).numpy())
