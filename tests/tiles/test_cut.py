"""Parts of packed matrices: the same weights as the same part of what unpacking gives."""

import pytest
import torch

from tests.tiles.cases import FORMATS, matrix
from tilepress.tiles import pack, unpack
from tilepress.tiles.cut import cut_cols, cut_rows

ROWS, COLS = 83, 203
IN_BLOCKS, ACROSS_BLOCKS = [((0, 16),), ((16, 48), (64, 80))], [((3, 19), (40, 83)), ((80, 83),)]
IN_TILES, ACROSS_TILES = [(0, 64), (64, 128), (64, COLS), (0, COLS)], [(96, COLS), (16, 80), (48, 96)]


def packed(format, sparse):
    return pack(matrix(ROWS, COLS, density=0.5 if sparse else 1.0), format, sparse=sparse)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_rows(format, sparse):
    whole = packed(format, sparse)
    for ranges in IN_BLOCKS + ACROSS_BLOCKS:
        part = cut_rows(whole, *ranges)
        assert torch.equal(unpack(part), torch.cat([unpack(whole)[first:end] for first, end in ranges]))
        assert (part.format, part.operand_bits, part.sparse) == (whole.format, whole.operand_bits, sparse)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_columns(format, sparse):
    whole = packed(format, sparse)
    for first, end in IN_TILES + ACROSS_TILES:
        part = cut_cols(whole, first, end)
        assert torch.equal(unpack(part), unpack(whole)[:, first:end])
        assert part.format.element == whole.format.element


def test_a_part_that_begins_within_a_group_has_smaller_ones():
    part = cut_cols(packed("int4:g128", False), 64, COLS)
    assert str(part.format) == "int4:g64"
    with pytest.raises(ValueError, match="a part of a int4:g32 matrix cannot begin at input 72, within 16 of a group"):
        cut_cols(packed("int4:g32", False), 72, 144)


@pytest.mark.parametrize("first, end", [(-1, 16), (16, 16), (64, 300), (32, 16)])
def test_parts_that_there_are_not(first, end):
    whole = packed("int4:g32", False)
    with pytest.raises(ValueError, match=f"ends after that, at {COLS} at most: not {first}:{end}"):
        cut_cols(whole, first, end)
    with pytest.raises(ValueError, match=f"ends after that, at {ROWS} at most: not {first}:{end}"):
        cut_rows(whole, (0, 16), (first, end))
