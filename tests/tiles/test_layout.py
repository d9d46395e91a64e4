"""The layout's own arithmetic, against examples worked by hand, and its twin in C++."""

from pathlib import Path

import numpy as np
import pytest

from tilepress.tiles.layout import Layout, cpp_header, element_index, element_order, fields

HEADER = Path(__file__).parents[2] / "native/include/tilepress/layout.h"


def test_the_cpp_header_is_the_generated_one():
    assert HEADER.read_text() == cpp_header(), "run `make header`"


@pytest.mark.parametrize(
    ("neuron", "input", "operand_bits", "index"),
    [
        (0, 0, 16, 0),
        (0, 1, 16, 1),
        (1, 0, 16, 2),
        (15, 1, 16, 31),
        (0, 2, 16, 32),  # the next row: inputs 2 and 3 of neuron 0
        (15, 31, 16, 511),
        (0, 3, 8, 3),
        (1, 0, 8, 4),
        (0, 4, 8, 64),
        (15, 63, 8, 1023),
    ],
)
def test_elements_lie_in_vnni_order(neuron, input, operand_bits, index):
    assert element_index(neuron, input, operand_bits) == index


@pytest.mark.parametrize("operand_bits", [8, 16])
def test_a_tile_holds_every_element_once(operand_bits):
    order = element_order(operand_bits)
    assert order.shape == (16, 512 // operand_bits)
    assert np.array_equal(np.sort(order.ravel()), np.arange(order.size))


@pytest.mark.parametrize("bits", range(1, 9))
def test_fields_cover_each_bit_of_a_code_once(bits):
    covered = [shift + bit for shift, width in fields(bits) for bit in range(width)]
    assert covered == list(range(bits))
    assert all(8 % width == 0 for _, width in fields(bits))


def test_sizes_of_a_ragged_matrix():
    layout = Layout(rows=17, cols=65, bits=4, operand_bits=8, sparse=True, group=32)
    assert (layout.blocks, layout.block_tiles, layout.groups) == (2, 2, 3)
    assert layout.mask_bytes == 2 * 2 * 128
    assert layout.dense_code_bytes == 2 * 2 * 512
    assert layout.scale_shape == (2, 3, 16)
    assert [layout.stream_bytes(codes) for codes in (0, 1, 2, 3)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "empty matrix cannot be packed: 0 × 4"),
        ({"cols": -1}, "empty matrix"),
        ({"operand_bits": 32}, "8 or 16 bits, not 32"),
        ({"bits": 9}, "1 to 8 bits, or 16, not 9"),
        ({"bits": 0}, "1 to 8 bits, or 16, not 0"),
        ({"bits": 16}, "16-bit code needs a 16-bit operand"),
    ],
)
def test_impossible_layouts_are_refused(changes, message):
    good = {"rows": 4, "cols": 4, "bits": 4, "operand_bits": 8, "sparse": False}
    with pytest.raises(ValueError, match=message):
        Layout(**(good | changes))
