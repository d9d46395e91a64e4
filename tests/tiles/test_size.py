"""Bytes said of packed matrices, beside those of really packed ones."""

import pytest

from tests.tiles.cases import FORMATS, matrix
from tilepress import tiles
from tilepress.compression.prune import magnitude_mask
from tilepress.formats import parse_weight
from tilepress.tiles.size import packed_bytes

SHAPES = [(1, 1), (16, 64), (19, 70), (48, 256), (33, 97)]
DENSITIES = [0.03, 0.5, 0.77]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_dense_matrices(format, shape):
    assert packed_bytes(format, *shape) == tiles.pack(matrix(*shape), format).nbytes


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["int4:g32", "uint3:g64", "int8:row", "bf16", "mxfp4", "nf4:g32:e8m0"])
def test_sparse_matrices(name, shape, density):
    weight, format = matrix(*shape), parse_weight(name)
    mask = magnitude_mask(weight, density)
    assert packed_bytes(format, *shape, density) == tiles.pack(weight, format, mask=mask).nbytes


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["int4:g32", "uint3:g64", "int8:row"])
def test_where_rows_are_not_alike_it_is_the_most(name, shape, density):
    weight, format = matrix(*shape), parse_weight(name)
    mask = magnitude_mask(weight, density, "layer")
    real, most = tiles.pack(weight, format, mask=mask).nbytes, packed_bytes(format, *shape, density, even=False)
    assert real <= most <= real + -(-shape[0] // 16)
