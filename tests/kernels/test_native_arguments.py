"""The compiled module itself refuses arrays that do not fit, whoever calls it."""

import numpy as np
import pytest

from tilepress import _native
from tilepress.formats import parse_weight
from tilepress.tiles.native import _make_native_format

ROWS, COLS = 16, 64
BYTES, INTS, FLOATS = np.uint8, np.int64, np.float32


def make(**changes):
    """A sparse int4:g32 matrix of zeros, with some arguments replaced."""
    arguments = {
        "format": _make_native_format(parse_weight("int4:g32"), 32),
        "rows": ROWS,
        "cols": COLS,
        "operand_bits": 8,
        "sparse": True,
        "codes": np.zeros(64, BYTES),
        "mask": np.zeros(128, BYTES),
        "offsets": np.zeros(2, INTS),
        "scales": np.zeros(2 * 16 * 2, BYTES),
        "zeros": np.zeros(0, BYTES),
    }
    return _native.Matrix(**(arguments | changes))


def test_the_unchanged_call_works():
    assert make().unpack_weights(np.zeros(ROWS * COLS, FLOATS), 1) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "sides must be positive"),
        ({"rows": 1 << 40, "cols": 1 << 40}, "too large"),
        ({"rows": 17}, "mask has 128 entries, not 256"),
        ({"cols": 65}, "mask has 128 entries, not 256"),
        ({"operand_bits": 4}, "8 or 16 bits"),
        ({"sparse": False}, "mask has 128 entries, not 0"),
        ({"mask": np.zeros(127, BYTES)}, "mask has 127 entries"),
        ({"mask": np.full(128, 255, BYTES)}, "disagree about the codes of block 0"),
        ({"offsets": np.zeros(1, INTS)}, "offsets has 1 entries, not 2"),
        ({"offsets": np.array([1, 1], INTS)}, "start at 0"),
        ({"offsets": np.array([0, -1], INTS)}, "must ascend"),
        ({"offsets": np.array([0, 10**9], INTS)}, "ascend by at most a block"),
        ({"offsets": np.array([0, 8], INTS)}, "end at the last code"),
        ({"codes": np.zeros(63, BYTES)}, "end at the last code"),
        ({"scales": np.zeros(62, BYTES)}, "scales has 62 entries, not 64"),
        ({"zeros": np.zeros(32, BYTES)}, "zeros has 32 entries, not 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_zero_points_between_codes_are_refused_where_weights_are_dropped():
    format = _make_native_format(parse_weight("uint4:g32"), 32)
    zeros = np.full(32, 16 * 15, BYTES)
    make(format=format, zeros=zeros)
    zeros[5] = 8
    with pytest.raises(ValueError, match="zero points of a sparse matrix must be whole"):
        make(format=format, zeros=zeros)
    make(format=format, zeros=zeros, sparse=False, codes=np.zeros(512, BYTES), mask=BYTES(()), offsets=INTS(()))


def test_results_of_the_wrong_size_are_refused():
    with pytest.raises(ValueError, match="weights has 1023 entries, not 1024"):
        make().unpack_weights(np.zeros(ROWS * COLS - 1, FLOATS), 1)
    with pytest.raises(TypeError):
        make().unpack_weights(np.zeros(ROWS * COLS, np.float64), 1)


@pytest.mark.parametrize("changes", [{"codes": np.zeros(128, BYTES)[::2]}, {"offsets": np.zeros(2, np.int32)}])
def test_arrays_of_another_kind_are_refused(changes):
    with pytest.raises(TypeError):
        make(**changes)


def test_packing_into_offsets_that_do_not_fit_is_refused():
    """As when another thread writes to the matrix while it is packed."""
    format = _make_native_format(parse_weight("e4m3"), COLS)
    source, keep = np.ones(ROWS * COLS, BYTES), np.ones(ROWS * COLS, BYTES)
    codes, mask, offsets = np.zeros(64 + 100, BYTES), np.zeros(128, BYTES), np.array([0, 100], INTS)
    with pytest.raises(RuntimeError, match="the matrix changed while it was used"):
        _native.pack_codes(format, ROWS, COLS, 16, True, source, keep, codes, mask, offsets, 1)
    assert not codes.any()
