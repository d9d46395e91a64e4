"""Rows of packed weights: every format, dense and sparse, to the bit of the plain reference."""

import numpy as np
import pytest
import torch

from tilepress import kernels, tiles
from tilepress.kernels import reference

ROWS, COLS = 41, 100  # the last block and the last tile are partial
WEIGHT = torch.randn(ROWS, COLS, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([[40, 0, 16], [15, 16, 40]])
FORMATS = ["int8:row", "int4:g32", "uint4:g32", "int3:g32", "mxfp4", "nf4:g64", "e4m3", "bf16", "fp16"]


def packed(format="int8:row", sparse=False):
    return tiles.pack(WEIGHT, format, mask=WEIGHT > 0 if sparse else None)


@pytest.mark.isas
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_it_is_the_reference(format, sparse):
    matrix = packed(format, sparse)
    rows = kernels.embedding(IDS, matrix)
    assert rows.shape == (2, 3, COLS) and torch.equal(rows, reference.embedding(IDS, matrix))


@pytest.mark.isas
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_rounded_as_torch_does(dtype):
    matrix = packed("e4m3")
    assert torch.equal(kernels.embedding(IDS, matrix, dtype), reference.embedding(IDS, matrix).to(dtype))


def test_any_number_of_threads_and_ids():
    matrix, ids = packed("int4:g32"), torch.arange(1000) * 7 % ROWS
    expected = reference.embedding(ids, matrix)
    for threads in (1, 3):
        assert torch.equal(kernels.embedding(ids, matrix, threads=threads), expected)
    assert kernels.embedding(ids[:0], matrix).shape == (0, COLS)
    assert torch.equal(kernels.embedding(ids.to(torch.int32)[::2], matrix), expected[::2])
    assert torch.equal(kernels.embedding(ids[5], matrix), expected[5])


@pytest.mark.parametrize("bad", [-1, ROWS, 2**40, -(2**63)])
def test_an_id_that_is_no_row_is_refused(bad):
    with pytest.raises(IndexError, match=rf"there are rows 0 to {ROWS - 1}, and no row {bad}"):
        kernels.embedding(torch.tensor([3, bad, 5]), packed())


def test_other_types_are_refused():
    with pytest.raises(TypeError, match=r"ids are int64 or int32 on the CPU, not torch.float32 on cpu"):
        kernels.embedding(torch.zeros(3), packed())
    with pytest.raises(TypeError, match=r"an embedding gives float32, bfloat16 or float16, not torch.float64"):
        kernels.embedding(IDS, packed(), torch.float64)


def test_results_of_the_wrong_size_are_refused():
    with pytest.raises(ValueError, match=f"rows has {4 * COLS - 1} entries, not {4 * COLS}"):
        packed().native.gather(np.zeros(1, np.int64), "fp32", np.zeros(4 * COLS - 1, np.uint8), 1)
