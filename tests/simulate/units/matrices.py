"""What units are given: packed matrices, neurons of integer weights, pairs of groups."""

from dataclasses import replace

import numpy as np
import torch

from tilepress.formats import decode, weight_names
from tilepress.simulate.units.dot import Weights
from tilepress.simulate.units.harmonia_pe import HALF_BITS, Mode
from tilepress.tiles import pack, unpack, unpack_codes

FORMATS = [name for name in weight_names() if not name.startswith(("nf4", "fp16"))]


def packed(name, density=1.0, rows=40, cols=160, seed=7):
    generator = np.random.default_rng(seed)
    values = torch.from_numpy(generator.standard_normal((rows, cols), np.float32))
    mask = torch.from_numpy(generator.random((rows, cols)) < density)
    return pack(values, name, mask=None if density == 1 else mask, operand_bits=16)


def whole(matrix, values):
    """Tiles put back in their places."""
    layout = matrix.layout
    blocks = values.reshape(layout.blocks, layout.block_tiles, 16, 32).transpose(1, 2)
    return blocks.reshape(layout.blocks * 16, -1)[: matrix.rows, : matrix.cols]


def is_equal(matrix, values):
    expected = unpack(matrix).to(torch.bfloat16)
    return torch.equal(whole(matrix, values).contiguous().view(torch.int16), expected.view(torch.int16))


def neurons(rows, inputs, group, seed=0):
    """A packed matrix int4:g`group`, and what its rows are to a unit."""
    matrix = pack(torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)), f"int4:g{group}")
    quantized, _ = unpack_codes(matrix)
    integers = decode(quantized.codes, matrix.format.element).to(torch.int64)
    return matrix, [Weights(*row, group) for row in zip(integers, quantized.scales.to(torch.float32), strict=True)]


def narrowed(pair):
    """In M8M4 where the second side's low four bits are all zero, which changes no value."""
    if pair.mode is not Mode.m8m8 or (pair.right & (1 << HALF_BITS) - 1).any():
        return pair
    return replace(pair, mode=Mode.m8m4, right=pair.right >> HALF_BITS, power=pair.power + HALF_BITS)
