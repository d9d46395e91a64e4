"""A packed matrix whose arrays contradict each other cannot be made."""

import pytest
import torch

from tests.tiles.cases import matrix
from tilepress import tiles
from tilepress.tiles import DamagedError, PackedMatrix


def parts(packed: PackedMatrix, **changes) -> PackedMatrix:
    """The same matrix with some of its parts replaced."""
    whole = {"format": packed.format, "rows": packed.rows, "cols": packed.cols, "operand_bits": packed.operand_bits}
    return PackedMatrix(**(whole | packed.streams | changes))


def with_byte(array: torch.Tensor, index: int, value: int) -> torch.Tensor:
    changed = array.clone()
    changed.view(-1)[index] = value
    return changed


@pytest.fixture
def sparse() -> PackedMatrix:
    return tiles.pack(matrix(20, 100, density=0.5), "uint4:g32", sparse=True)


@pytest.fixture
def dense() -> PackedMatrix:
    return tiles.pack(matrix(20, 100), "int4:g32")


def test_the_right_parts_make_the_same_matrix(sparse):
    assert torch.equal(tiles.unpack(parts(sparse)), tiles.unpack(sparse))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: {"mask": None}, "offsets must not be there"),
        (lambda m: {"mask": None, "offsets": None}, "codes must be torch.uint8"),
        (lambda m: {"offsets": None}, "offsets must be there"),
        (lambda m: {"scales": None}, "scales must be there"),
        (lambda m: {"zeros": None}, "zeros must be there"),
        (lambda m: {"mask": m.mask[:-1].clone()}, "mask must be torch.uint8"),
        (lambda m: {"mask": m.mask.to(torch.int16)}, "mask must be torch.uint8"),
        (lambda m: {"codes": m.codes[:-1].clone()}, "codes must be torch.uint8"),
        (lambda m: {"codes": m.codes[::2]}, "codes must be torch.uint8"),
        (lambda m: {"codes": with_byte(m.codes, -1, 1)}, "codes must end in 64 zero bytes"),
        (lambda m: {"offsets": with_byte(m.offsets, 0, 1)}, "start at 0 and never descend"),
        (lambda m: {"offsets": with_byte(m.offsets, 1, 10**15)}, "start at 0 and never descend"),
        (lambda m: {"offsets": with_byte(m.offsets, 1, -1)}, "start at 0 and never descend"),
        (lambda m: {"offsets": with_byte(m.offsets, 1, 5)}, "disagree about the codes of block 0"),
        (lambda m: {"offsets": with_byte(m.offsets, 2, 10**15)}, "codes must be torch.uint8"),
        (lambda m: {"mask": with_byte(m.mask, 0, 255)}, "disagree about the codes of block 0"),
        (lambda m: {"rows": 16}, "mask must be"),
        (lambda m: {"rows": 33}, "mask must be"),
        (lambda m: {"rows": 18}, "mask keeps an element outside the matrix"),
        (lambda m: {"cols": 99}, "mask keeps an element outside the matrix"),
        (lambda m: {"operand_bits": 16}, "offsets and|mask and|mask keeps|disagree|mask must"),
        (lambda m: {"zeros": with_byte(m.zeros, 0, 17)}, "of a sparse uint4:g32 matrix must be whole, multiples of 16"),
        (lambda m: {"scales": m.scales.float()}, "scales must be torch.float16"),
        (lambda m: {"scales": m.scales.transpose(0, 1)}, "scales must be"),
    ],
)
def test_damaged_sparse_parts_are_refused(sparse, change, message):
    with pytest.raises(DamagedError, match=message):
        parts(sparse, **change(sparse))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: {"offsets": torch.zeros(3, dtype=torch.int64)}, "offsets must not be there"),
        (lambda m: {"zeros": torch.zeros(2, 4, 16, dtype=torch.uint8)}, "zeros must not be there"),
        (lambda m: {"codes": m.codes[1:].clone()}, "codes must be torch.uint8"),
        (lambda m: {"codes": m.codes.repeat(2)[::2]}, "contiguous on the CPU"),
        (lambda m: {"codes": m.codes.to("meta")}, "contiguous on the CPU"),
    ],
)
def test_damaged_dense_parts_are_refused(dense, change, message):
    with pytest.raises(DamagedError, match=message):
        parts(dense, **change(dense))


def test_what_a_matrix_says_of_itself(sparse, dense):
    assert repr(dense) == f"PackedMatrix(int4:g32, 20×100, {dense.nbytes} bytes)"
    assert sparse.shape == (20, 100) and sparse.sparse and not dense.sparse
    assert sparse.density == sparse.nonzeros / 2000 and dense.density == 1.0
    assert sparse.nbytes == sum(array.nbytes for array in sparse.streams.values())
