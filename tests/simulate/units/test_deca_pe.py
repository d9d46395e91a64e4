"""DECA's element: the bits of `tiles.unpack`, in the cycles and with the events of its formulas, squashed or not."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.units.matrices import FORMATS, is_equal, packed, whole
from tilepress.formats import parse_weight
from tilepress.roofsurface import Deca
from tilepress.simulate.units import deca_pe
from tilepress.simulate.units.deca_arithmetic import expand, fill_tables, holds_values
from tilepress.simulate.units.deca_pe import Pe
from tilepress.simulate.units.deca_tile import CompressedTile, compressed_tiles
from tilepress.simulate.units.events import Events
from tilepress.tiles import pack, unpack

BF8, BF16, MXFP4 = (parse_weight(name).element for name in ("bf8", "bf16", "mxfp4"))


def at_once(tile, line):
    return 1


def decompressed(matrix, engine=None, latency=at_once, **options):
    return Pe(matrix.format.element, engine).decompress(list(compressed_tiles(matrix)), latency, **options)


@pytest.mark.parametrize("density", [1.0, 0.3, 0.02])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_to_the_bit(name, density):
    matrix = packed(name, density)
    assert is_equal(matrix, decompressed(matrix).values) and holds_values(matrix.format.element)


@pytest.mark.parametrize("engine", [Deca(8, 4), Deca(64, 64), Deca(32, 5), Deca(512, 1), Deca(1, 1)])
def test_every_size_of_engine(engine):
    matrix = packed("mxfp6", 0.4)
    assert is_equal(matrix, decompressed(matrix, engine).values)


def test_values_that_bf16_does_not_hold_are_rounded_first():
    matrix = packed("nf4:g64")
    result, exact = whole(matrix, decompressed(matrix).values).float(), unpack(matrix)
    assert not torch.equal(result, exact.to(torch.bfloat16).float()) and not holds_values(matrix.format.element)
    assert ((result - exact).abs() <= 2 * 2.0**-8 * 1.01 * exact.abs()).all()  # two roundings


@st.composite
def runs(draw):
    """Tiles of random codes, bitmasks and places, an element, latencies of all lines, and a short queue of codes."""
    name = draw(st.sampled_from(["bf8", "mxfp4", "int7:g32", "uint4:g128", "int8:row", "int3:g16", "bf16"]))
    matrix = packed(name, draw(st.sampled_from([1.0, 0.9, 0.5, 0.1, 0.01])), 16, 32 * draw(st.integers(1, 6)))
    engine = Deca(draw(st.sampled_from([8, 16, 32, 64])), draw(st.integers(1, 16)))
    most = draw(st.sampled_from([1, 4, 40]))
    choice = np.random.default_rng(draw(st.integers(0, 2**16))).integers(1, most + 1, (6, 64))
    return matrix, engine, lambda tile, line: int(choice[tile, line]), draw(st.sampled_from([3, 4, 32]))


@settings(max_examples=80)
@given(runs())
def test_cycles_and_events_are_those_of_the_formulas(run):
    matrix, engine, latency, sqq_lines = run
    tiles = list(compressed_tiles(matrix))
    result = Pe(matrix.format.element, engine, sqq_lines).decompress(tiles, latency)
    assert result.finished == deca_pe.cycles(tiles, engine, latency, sqq_lines=sqq_lines)
    assert result.cycles == result.finished[-1] and is_equal(matrix, result.values)
    assert result.events == sum((deca_pe.events(tile, engine) for tile in tiles), Events())
    lookups = engine.lookups(matrix.format.element.bits)
    windows = [window for tile in tiles for window in tile.windows(engine.width)]
    assert result.bubbles == sum(max(-(-window // lookups), 1) - 1 for window in windows)


@settings(max_examples=60)
@given(runs(), st.integers(1, 200), st.integers(0, 30))
def test_a_squash_leaves_nothing_behind(run, first, gap):
    """What remains takes as long as on an element that was never used, in whatever stage the squashed tiles were."""
    matrix, engine, latency, sqq_lines = run
    tiles = list(compressed_tiles(matrix))
    squashes = [first, first + gap]
    result = Pe(matrix.format.element, engine, sqq_lines).decompress(tiles, latency, squashes)
    expected = deca_pe.cycles(tiles, engine, latency, squashes, sqq_lines)
    assert result.finished == expected and is_equal(matrix, result.values)


def test_cycles_of_squashed_tiles_by_hand():
    """The first tile is done in cycle 25; squashed in cycle 30, the second starts from nothing."""
    tiles = [CompressedTile(4, np.zeros(512, np.int64))] * 2
    alone = deca_pe.cycles(tiles[1:], Deca(), lambda tile, line: 5)[0]
    assert deca_pe.cycles(tiles, Deca(), lambda tile, line: 5) == [alone, alone + 16] == [25, 41]
    assert deca_pe.cycles(tiles, Deca(), lambda tile, line: 5, [30]) == [25, 30 + 25]
    assert deca_pe.cycles(tiles, Deca(), lambda tile, line: 5, [30, 25]) == [30 + 25, 30 + 41]


def test_a_squash_empties_every_stage():
    matrix = packed("bf8", 0.5, 16, 96)
    pe, tiles = Pe(BF8), list(compressed_tiles(matrix))
    seen = set()
    for cycle in range(60):
        pe._clock(tiles, lambda tile, line: 3, squashed=False)
        seen |= {name for name in ("_dequantising", "_sparse", "_dense") if getattr(pe, name)}
        if cycle % 17 == 16:
            assert not pe.is_empty
            pe.squash()
            assert pe.is_empty
    assert seen == {"_dequantising", "_sparse", "_dense"}


def dense_tile(bits=8, **fields):
    return CompressedTile(bits, np.arange(512) % 200, **fields)


def test_one_tile_by_hand():
    """Eight lines of dense bf8: requested in cycles 1 to 8, there 10 later, entered and valid the cycle after; 16 vOps
    of four cycles, expansion, scaling, and the core reads the last row."""
    (finished,) = deca_pe.cycles([dense_tile()], Deca(), lambda tile, line: 10)
    assert finished == 1 + 10 + 16 * 4 + 3
    result = Pe(BF8).decompress([dense_tile()], lambda tile, line: 10)
    assert result.cycles == finished and result.bubbles == 48 and result.starved == 11


def test_a_vector_operation_starts_when_its_own_input_has_come():
    """Not when all of the tile's has: of mxfp4, line 0 holds the codes of four vOps."""
    late = [1, 1, 1, 100]
    (finished,) = deca_pe.cycles([dense_tile(4)], Deca(), lambda tile, line: late[line])
    assert finished == 4 + 100 + 4 + 3  # the last four vOps alone are left by then
    assert Pe(MXFP4).decompress([CompressedTile(4, np.zeros(512, np.int64))], lambda tile, line: late[line]).cycles == (
        finished
    )


def test_two_tiles_are_in_the_element_at_once():
    """The third is called when the core has read the first; with a long latency, pairs of tiles come."""
    tiles = [CompressedTile(4, np.zeros(512, np.int64))] * 5
    finished = deca_pe.cycles(tiles, Deca(), lambda tile, line: 1000)
    assert [cycle // 1000 for cycle in finished] == [1, 1, 2, 2, 3]
    assert set(np.diff(deca_pe.cycles(tiles, Deca(), lambda tile, line: 12))) == {16}  # hidden behind 16 vOps
    assert list(np.diff(deca_pe.cycles(tiles, Deca(), lambda tile, line: 14))) == [16, 18, 16, 18]


def test_wide_engines_wait_for_the_port_of_the_output_register():
    """Two rows are written in a cycle, one is read."""
    (narrow,), (wide,) = (deca_pe.cycles([dense_tile(4)], Deca(w, 64), at_once) for w in (32, 64))
    assert narrow == 1 + 1 + 16 + 3 and wide == 1 + 1 + 1 + 1 + 16 + 1


def test_lines_come_one_a_cycle_and_wait_for_room():
    one_by_one = deca_pe.cycles([dense_tile(16)], Deca(), lambda tile, line: 100 - line)
    assert one_by_one == [1 + 100 + 16 + 3]  # all arrive in cycle 101
    tiles = [dense_tile(16)] * 2
    starved = {lines: Pe(BF16, Deca(64, 64), lines).decompress(tiles, at_once).starved for lines in (3, 4, 8, 32)}
    # The first tile: 3 cycles at first, 1 before each later vOp of two lines. The second: none if its lines are there.
    assert starved == {3: 10 + 6, 4: 10 + 5, 8: 10 + 1, 32: 10}


def test_events_of_a_tile_by_hand():
    mask = np.arange(512) % 4 == 0
    sparse = CompressedTile(
        8, np.zeros(128, np.int64), mask, np.ones(512, np.float32), np.zeros(512, np.float32), 8, 2, 32
    )
    assert sparse.lines == 1 + 2 + 3 and sparse.code_lines == 3  # 8 + 1024 bits
    assert deca_pe.events(sparse, Deca()) == Events(
        requests=6,
        searches=6,
        line_writes=3 + 16,
        line_reads=3 + 16,
        register_bits=512 + 32 * 16 + 3 * 512 + 128 * 16 + 512 * 16,
        adds=1024,
        lookups=128,
        crossbar_moves=128,
        float_adds=512,
        float_multiplies=512,
    )
    plain = deca_pe.events(dense_tile(16), Deca(8, 8))
    assert plain == Events(
        requests=16, searches=16, line_writes=16 + 64, line_reads=32, register_bits=16 * 512 + 2 * 512 * 16
    )


def test_lines_lie_where_packed_matrices_have_them():
    dense = list(compressed_tiles(packed("mxfp4", rows=16, cols=96)))
    assert [tile.code_lines for tile in dense] == [4] * 3 and dense[0].group_lines == 1 and dense[0].mask_lines == 0
    assert dense[0].group_entries == 16
    sparse = list(compressed_tiles(packed("bf8", 0.05, 16, 96)))
    assert sparse[0].first_bit == 0 and sparse[1].first_bit == 8 * len(sparse[0].codes)
    assert sparse[0].mask_lines == 1 and sparse[0].group_lines == 0
    zeros = next(compressed_tiles(packed("uint4:g128", rows=16, cols=128)))
    assert zeros.group_lines == 2 and zeros.group_entries == 32  # scales of 16 bits, zero points of eight
    wide = next(compressed_tiles(packed("int8:row", rows=16, cols=64)))
    assert wide.group_lines == 1 and wide.group_entries == 32  # scales of 32 bits take two entries
    second_block = list(compressed_tiles(packed("int3:g32", rows=32, cols=32)))[1]
    assert second_block.first_bit == 0 and second_block.code_lines == 3
    halves = list(compressed_tiles(packed("int3:g32", rows=16, cols=160)))
    assert [tile.group_lines for tile in halves] == [1] * 5


def test_sizes_are_table_3s():
    """2 KB in entries of 64 bytes, 64 bytes in entries of 2, and the 512 weights of a tile as 16 rows of 64 bytes."""
    assert deca_pe.SQQ_LINES == 2048 // 64 and deca_pe.SCALE_ENTRIES == 64 // 2
    assert deca_pe.ROWS == 16 and deca_pe.ROW_WEIGHTS == 32 and deca_pe.LOADERS == 2


def test_tables_are_filled_as_often_as_values_fit():
    two = fill_tables(parse_weight("int7:g32").element).reshape(2, 128)
    assert (two[0] == two[1]).all() and two[0, 127] == -1
    four = fill_tables(parse_weight("mxfp4").element)
    assert four.shape == (4, 64) and (four == four[0]).all() and not four[0, 16:].any()
    assert np.isnan(fill_tables(parse_weight("e4m3").element)).sum() == 2


def test_expansion():
    bits = np.array([1, 0, 0, 1, 1], bool)
    assert expand(np.array([5, 6, 7], np.float32), bits).tolist() == [5, 0, 0, 6, 7]
    assert expand(np.empty(0, np.float32), np.zeros(3, bool)).tolist() == [0, 0, 0]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="codes of up to 8 bits, or bf16, not fp16"):
        Pe(parse_weight("fp16").element)
    with pytest.raises(ValueError, match="not for codes of 4 bits"):
        Pe(BF8).decompress([dense_tile(4)], at_once)
    with pytest.raises(ValueError, match="take 64 entries; the scale factor queue has 32: take larger groups"):
        decompressed(packed("uint4:g16"))
    assert is_equal(packed("int4:g16"), decompressed(packed("int4:g16")).values)  # 32 entries
    with pytest.raises(ValueError, match="can need 2 lines at once; 1 are too few"):
        Pe(BF8, sqq_lines=1).decompress([dense_tile()], at_once)
    with pytest.raises(ValueError, match="latency must be at least 1, got 0"):
        Pe(BF8).decompress([dense_tile()], lambda tile, line: 0)
    with pytest.raises(ValueError, match=r"8-bit operands: pack it with operand_bits=16"):
        next(compressed_tiles(pack(torch.ones(16, 64), "int8:row")))
