"""A packed matrix in memory, as DECA reads it: the streams of `tiles.layout`, and the metadata of each tile.

Dense codes of less than eight bits, which `tiles` cuts into fields, are one stream here, as sparse ones are there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...formats import Element
from ...formats.weight import SCALE_BITS
from ...formats.zero_points import ZERO_POINT_BITS
from ...roofsurface.decompressors import table_lookups
from ...simulate.units.deca_arithmetic import fill_tables
from ...simulate.units.deca_tile import TILE_INPUTS, CompressedTile, compressed_tiles
from ...tiles import PackedMatrix
from ...tiles.native import raw_bytes
from .parameters import LINE_BITS, NEURONS

LINE_BYTES = LINE_BITS // 8


@dataclass(frozen=True)
class Image:
    """`lines`: what each address holds. `tiles`: metadata, fields of `Parameters.tile`."""

    lines: list[int]
    tiles: list[dict[str, int]]


def image_of(matrix: PackedMatrix) -> Image:
    """Streams one after another, each from the beginning of a line."""
    tiles = list(compressed_tiles(matrix))
    streams = {name: raw_bytes(tensor).tobytes() for name, tensor in matrix.streams.items() if name != "offsets"}
    if not matrix.sparse:
        streams["codes"] = _bytes_of(tiles)
    lines: list[int] = []
    bases: dict[str, int] = {}
    for name, stream in streams.items():
        bases[name] = len(lines)
        lines += [int.from_bytes(stream[at : at + LINE_BYTES], "little") for at in range(0, len(stream), LINE_BYTES)]
    return Image(lines, list(_metadata(matrix, tiles, bases)))


def table_words(element: Element) -> Iterator[tuple[int, int]]:
    """(entry, bf16 value) of all entries that are read: tables are filled once for each look-up of a cycle."""
    words: NDArray[np.uint32] = fill_tables(element).reshape(table_lookups(element.bits), -1).view(np.uint32)
    for part, values in enumerate(words):
        for code in range(element.codes):
            yield part * len(values) + code, int(values[code]) >> 16


def _bytes_of(tiles: Iterable[CompressedTile]) -> bytes:
    """Codes of dense tiles as one stream, lowest bit first."""
    bits = [tile.codes[:, None] >> np.arange(tile.bits) & 1 for tile in tiles]
    return np.packbits(np.concatenate(bits), bitorder="little").tobytes()


def _metadata(matrix: PackedMatrix, tiles: list[CompressedTile], bases: dict[str, int]) -> Iterator[dict[str, int]]:
    per_block = matrix.layout.block_tiles
    position = 0  # of the next code, in bits
    for index, tile in enumerate(tiles):
        block = index // per_block
        if index % per_block == 0 and matrix.offsets is not None:
            position = 8 * int(matrix.offsets[block])
        yield {
            "mask": bases.get("mask", 0) + index,
            "codes": bases["codes"] + position // LINE_BITS,
            "first_bit": position % LINE_BITS,
            "code_lines": tile.code_lines,
            **_groups(matrix, block, index % per_block, bases),
        }
        position += len(tile.codes) * tile.bits


def _groups(matrix: PackedMatrix, block: int, tile: int, bases: dict[str, int]) -> dict[str, int]:
    """Where scales and zero points are."""
    scaling, group = matrix.format.scaling, matrix.layout.group
    if scaling is None or group is None:
        return {}
    last_input = min((tile + 1) * TILE_INPUTS, matrix.cols) - 1
    first, last = (input // group for input in (tile * TILE_INPUTS, last_input))
    row = block * matrix.layout.groups + first  # of sixteen neurons
    in_line, zeros_in_line = (LINE_BITS // (NEURONS * bits) for bits in (SCALE_BITS[scaling.type], ZERO_POINT_BITS))
    fields = {"scales": bases["scales"] + row // in_line, "scale_part": row % in_line, "two_groups": last - first}
    if matrix.zeros is not None:
        fields |= {"zeros": bases["zeros"] + row // zeros_in_line, "zero_part": row % zeros_in_line}
    return fields
