"""Where the bits of a packed matrix lie. Nothing else knows; the C++ header is generated from here.

A matrix [rows = output neurons, cols = inputs] is cut into **blocks** of 16 neurons and each block, along its inputs,
into **tiles** of 16 neurons × 32 inputs (16-bit operands) or × 64 inputs (8-bit operands). Decoded, a tile is 16 rows
of 64 bytes, and each row is one vector operand of AMX, AVX-512 dot products and NEON `sdot` alike (VNNI order):

    row r holds, for neuron 0, 1 … 15 in turn, its inputs p·r … p·r + p - 1     p = 2 (16-bit) or 4 (8-bit)

so the element (neuron n, input i) of a tile has index (i // p)·16·p + n·p + i % p. Elements past the matrix' edge are
padding: code 0 in a dense matrix, no mask bit and no code in a sparse one.

Streams, each one array for the whole matrix, block after block:

codes, dense, 16 bits: the tile's elements in index order, two bytes each, little-endian.

codes, dense, ≤ 8 bits: a tile's elements are taken 64 at a time (a **line**). A code of Q bits is cut into fields of 8,
  4, 2 and 1 bits, as Q's binary digits say, lowest bits first into the widest field (7 = 4 + 2 + 1). Each field is
  stored for the whole tile, widest field first, in vectors of 64 bytes: byte j of a vector holds position j of 8/w
  consecutive lines, the first in its lowest bits. So decoding is only shifts and masks, 64 codes at a time, and no
  bit is wasted.

codes, sparse: the codes of the elements whose mask bit is set, in index order through all tiles of a block, as one
  bit stream, lowest bit first. A block starts on a byte, at `offsets[block]`; `offsets` is int64 [blocks + 1] and ends
  with the length, so any number of threads can start at any block. Then 64 zero bytes that vector loads may touch.

mask, sparse only: one bit per element in index order, lowest bit of a byte first: 64 or 128 bytes per tile.

scales, zeros: [blocks, groups, 16]: the 16 neurons of a block side by side, so that they are one vector. Padding
  neurons have scale 1 and zero point 0.
"""

import sys
from dataclasses import dataclass
from functools import cache

import numpy as np

BLOCK_NEURONS = 16
VECTOR_BYTES = 64
LINE_CODES = 64
SLACK_BYTES = 64
FIELD_WIDTHS = (8, 4, 2, 1)


@dataclass(frozen=True)
class Layout:
    """Shape and sizes of one packed matrix. `bits` is Q; `group` is inputs per scale, None where there is none."""

    rows: int
    cols: int
    bits: int
    operand_bits: int
    sparse: bool
    group: int | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise ValueError(f"an empty matrix cannot be packed: {self.rows} × {self.cols}")
        if self.operand_bits not in (8, 16):
            raise ValueError(f"an operand has 8 or 16 bits, not {self.operand_bits}")
        if self.bits != 16 and not 1 <= self.bits <= 8:
            raise ValueError(f"a code has 1 to 8 bits, or 16, not {self.bits}")
        if self.bits > self.operand_bits:
            raise ValueError("a 16-bit code needs a 16-bit operand")

    @property
    def tile_inputs(self) -> int:
        return VECTOR_BYTES * 8 // self.operand_bits

    @property
    def tile_codes(self) -> int:
        return BLOCK_NEURONS * self.tile_inputs

    @property
    def blocks(self) -> int:
        return -(-self.rows // BLOCK_NEURONS)

    @property
    def block_tiles(self) -> int:
        return -(-self.cols // self.tile_inputs)

    @property
    def block_codes(self) -> int:
        """Elements of a block, padding included."""
        return self.block_tiles * self.tile_codes

    @property
    def groups(self) -> int:
        return 0 if self.group is None else -(-self.cols // self.group)

    @property
    def tile_code_bytes(self) -> int:
        """Bytes of a dense tile's codes."""
        return self.tile_codes * self.bits // 8

    @property
    def tile_mask_bytes(self) -> int:
        return self.tile_codes // 8

    @property
    def mask_bytes(self) -> int:
        return self.blocks * self.block_tiles * self.tile_mask_bytes if self.sparse else 0

    @property
    def dense_code_bytes(self) -> int:
        return self.blocks * self.block_tiles * self.tile_code_bytes

    @property
    def scale_shape(self) -> tuple[int, int, int]:
        return (self.blocks, self.groups, BLOCK_NEURONS)

    def stream_bytes(self, codes: int) -> int:
        """Bytes of `codes` codes in one block of a sparse matrix."""
        return (codes * self.bits + 7) // 8


def element_index(neuron: int, input: int, operand_bits: int) -> int:
    """Index in a tile of its element (neuron, input)."""
    pack = 32 // operand_bits
    return input // pack * BLOCK_NEURONS * pack + neuron * pack + input % pack


@cache
def element_order(operand_bits: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """[16 neurons, tile inputs]: the index of every element of a tile."""
    inputs = VECTOR_BYTES * 8 // operand_bits
    order = [[element_index(n, i, operand_bits) for i in range(inputs)] for n in range(BLOCK_NEURONS)]
    return np.array(order, np.int64)


def fields(bits: int) -> list[tuple[int, int]]:
    """(lowest bit, width) of the fields a code of `bits` ≤ 8 bits is cut into, widest first."""
    parts, shift = [], 0
    for width in FIELD_WIDTHS:
        if bits & width:
            parts.append((shift, width))
            shift += width
    return parts


def cpp_header() -> str:
    """The text of `native/include/tilepress/layout.h`."""
    rows = []
    for bits in range(9):
        cells = [f"{{{shift}, {width}}}" for shift, width in fields(bits)]
        rows.append("    {" + ", ".join(cells + ["{0, 0}"] * (len(FIELD_WIDTHS) - len(cells))) + "},")
    return _HEADER.format(
        neurons=BLOCK_NEURONS,
        vector=VECTOR_BYTES,
        line=LINE_CODES,
        slack=SLACK_BYTES,
        count=len(FIELD_WIDTHS),
        fields="\n".join(rows),
    )


_HEADER = """\
// Generated by `make header` from src/tilepress/tiles/layout.py, which says what it all means. Do not edit.
#pragma once

#include <cstdint>

namespace tilepress {{

inline constexpr int kBlockNeurons = {neurons};
inline constexpr int kVectorBytes = {vector};
inline constexpr int kLineCodes = {line};
inline constexpr int kSlackBytes = {slack};
inline constexpr int kMaxFields = {count};

struct CodeField {{
  int shift;  // lowest bit of the code it holds
  int width;  // bits; 0 ends the list
}};

// Fields of a dense code of Q bits, indexed by Q.
// clang-format off
inline constexpr CodeField kCodeFields[9][kMaxFields] = {{
{fields}
}};
// clang-format on

constexpr int tile_inputs(int operand_bits) {{ return kVectorBytes * 8 / operand_bits; }}

constexpr int tile_codes(int operand_bits) {{ return kBlockNeurons * tile_inputs(operand_bits); }}

constexpr int element_index(int neuron, int input, int operand_bits) {{
  const int pack = 32 / operand_bits;
  return input / pack * kBlockNeurons * pack + neuron * pack + input % pack;
}}

// Bytes of a dense tile's codes, of a tile's mask, and of `codes` codes in one block of a sparse matrix.
constexpr int tile_code_bytes(int bits, int operand_bits) {{ return tile_codes(operand_bits) * bits / 8; }}

constexpr int tile_mask_bytes(int operand_bits) {{ return tile_codes(operand_bits) / 8; }}

constexpr int64_t stream_bytes(int bits, int64_t codes) {{ return (codes * bits + 7) / 8; }}

// Entry of a neuron's first group in scales and zeros; its groups follow each other at a distance of kBlockNeurons.
constexpr int64_t group_index(int64_t block, int64_t groups, int neuron) {{
  return block * groups * kBlockNeurons + neuron;
}}

}}  // namespace tilepress
"""

if __name__ == "__main__":
    sys.stdout.write(cpp_header())
