"""The processing element gives the bits that `tiles.unpack` gives."""

import numpy as np
import pytest
import torch

from tilepress.formats import parse_weight, weight_names
from tilepress.roofsurface import Deca
from tilepress.simulate.deca.element import ProcessingElement, expand, fill_tables
from tilepress.tiles import pack, unpack

FORMATS = [name for name in weight_names() if not name.startswith(("nf4", "fp16"))]


def weights(rows=40, cols=160, density=1.0):
    generator = np.random.default_rng(7)
    values = torch.from_numpy(generator.standard_normal((rows, cols), np.float32))
    return values, torch.from_numpy(generator.random((rows, cols)) < density)


def whole(matrix, engine=None):
    """All tiles of a matrix, put back in their places."""
    element, layout = ProcessingElement(matrix, engine), matrix.layout
    rows = [
        torch.cat([element.tile(block, tile).values for tile in range(layout.block_tiles)], dim=1)
        for block in range(layout.blocks)
    ]
    return torch.cat(rows)[: matrix.rows, : matrix.cols]


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_to_the_bit(name, density):
    values, mask = weights(density=density)
    matrix = pack(values, name, mask=None if density == 1 else mask, operand_bits=16)
    expected = unpack(matrix).to(torch.bfloat16)
    assert torch.equal(whole(matrix).view(torch.int16), expected.view(torch.int16))


@pytest.mark.parametrize("engine", [Deca(8, 4), Deca(64, 64), Deca(32, 5)])
def test_every_size_of_engine(engine):
    values, mask = weights(density=0.4)
    matrix = pack(values, "mxfp6", mask=mask)
    assert torch.equal(whole(matrix, engine), unpack(matrix).to(torch.bfloat16))


def test_integers_in_their_own_tiles():
    values, mask = weights(density=0.4)
    matrix = pack(values, "int4:g32", mask=mask)
    assert matrix.operand_bits == 8 and torch.equal(whole(matrix), unpack(matrix).to(torch.bfloat16))


def test_values_that_bf16_does_not_hold_are_rounded_first():
    matrix = pack(weights()[0], "nf4:g64")
    result, exact = whole(matrix).float(), unpack(matrix)
    assert not torch.equal(result, exact.to(torch.bfloat16).float())
    assert ((result - exact).abs() <= 2 * 2.0**-8 * 1.01 * exact.abs()).all()  # two roundings
    with pytest.raises(ValueError, match="codes of up to 8 bits, or bf16, not fp16"):
        ProcessingElement(pack(weights()[0], "fp16"))


def test_cycles_follow_the_bitmask():
    values, mask = weights(16, 32, 0.5)
    matrix = pack(values, "bf8", mask=mask)
    order = mask.view(16, 16, 2).transpose(0, 1).reshape(-1, 32)  # element order: pairs of inputs, neuron by neuron
    expected = [max(-(-int(kept) // 8), 1) for kept in order.sum(1)]
    assert ProcessingElement(matrix).tile(0, 0).cycles == expected
    dense = pack(values, "bf8")
    assert ProcessingElement(dense).tile(0, 0).cycles == [4] * 16
    assert ProcessingElement(pack(values, "mxfp4")).tile(0, 0).cycles == [1] * 16


def test_tables_are_filled_as_often_as_values_fit():
    two = fill_tables(parse_weight("int7:g32").element).reshape(2, 128)
    assert (two[0] == two[1]).all() and two[0, 127] == -1
    four = fill_tables(parse_weight("mxfp4").element)
    assert (four == four[0]).all() and not four[0, 16:].any()
    assert np.isnan(fill_tables(parse_weight("e4m3").element)).sum() == 2


def test_expansion():
    bits = np.array([1, 0, 0, 1, 1], bool)
    assert expand(np.array([5, 6, 7], np.float32), bits).tolist() == [5, 0, 0, 6, 7]
    assert expand(np.empty(0, np.float32), np.zeros(3, bool)).tolist() == [0, 0, 0]
