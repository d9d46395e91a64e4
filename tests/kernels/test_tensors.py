"""Tensors that native code reads and makes by itself, and those that go through Python."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tilepress import _native, kernels
from tilepress.kernels.linear import _linear_of_any, native_rounding
from tilepress.tiles import pack

pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="this torch hands out no functions to read tensors with",
)
COLS, ROWS = 96, 40
TYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(scope="module")
def matrix():
    return pack(torch.randn(ROWS, COLS, generator=torch.Generator().manual_seed(0)), "int4:g32")


def directly(matrix, x, activations):
    return matrix.native.linear(x, None, *native_rounding(activations), 2)


def by_python(matrix, x, activations):
    return _linear_of_any(x, matrix, None, native_rounding(activations), "", 2)


@pytest.mark.parametrize("activations", ["float", "int8", "bfp:g32:m8"])
@pytest.mark.parametrize("shape", [(COLS,), (1, COLS), (2, 3, COLS), (17, COLS)])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_both_ways_give_the_same(matrix, shape, dtype, activations):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    y = directly(matrix, x, activations)
    assert y.dtype == dtype and y.shape == (*shape[:-1], ROWS) and y.is_contiguous() and not y.requires_grad
    assert torch.equal(y, by_python(matrix, x, activations))


def test_a_part_of_a_tensor_is_read_where_it_lies(matrix):
    x = torch.randn(5, COLS)
    assert torch.equal(directly(matrix, x[3], "int8"), by_python(matrix, x[3].clone(), "int8"))


def test_the_result_is_memory_of_its_own(matrix):
    x = torch.randn(4, COLS)
    first, second = directly(matrix, x, "int8"), directly(matrix, 2 * x, "int8")
    copied = first.clone()
    second.zero_()
    assert torch.equal(first, copied) and first.data_ptr() % 64 == 0
    first.add_(1)
    assert torch.equal(directly(matrix, x, "int8"), copied)


@pytest.mark.parametrize("batch", [1, 4, 2**15])
def test_memory_is_used_again_only_when_nobody_has_it(matrix, batch):
    """The largest is more than a thread keeps for reuse."""
    inputs = [torch.randn(batch, COLS, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    expected = [by_python(matrix, x, "int8") for x in inputs]
    parts = []
    for x in inputs:
        part = directly(matrix, x, "int8")[batch // 2 :]  # the whole is gone, and its memory is still in use
        parts.append(part)
    for part, y in zip(parts, expected, strict=True):
        assert torch.equal(part, y[batch // 2 :])
    assert len({part.data_ptr() for part in parts}) == len(parts)
    del part, parts
    again = [directly(matrix, x, "int8") for x in inputs]
    assert all(torch.equal(y, other) for y, other in zip(again, expected, strict=True))


def test_many_threads_make_results_at_once(matrix):
    inputs = [torch.randn(3, COLS, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    expected = [by_python(matrix, x, "int8") for x in inputs]

    def wrong(index):
        return sum(not torch.equal(directly(matrix, inputs[index], "int8"), expected[index]) for _ in range(300))

    with ThreadPoolExecutor(len(inputs)) as threads:
        assert sum(threads.map(wrong, range(len(inputs)))) == 0


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 2 * COLS)[:, ::2],
        torch.randn(COLS, 2).T,
        torch.nn.Parameter(torch.randn(2, COLS)),
        torch.randn(2, COLS, dtype=torch.float64),
        torch.randn(2, COLS + 1),
        torch.randn(0, COLS),
        torch.tensor(1.0),
        torch.empty(2, COLS, device="meta"),
        [[1.0] * COLS],
    ],
    ids=["strided", "transposed", "subclass", "double", "columns", "empty", "scalar", "meta", "list"],
)
def test_what_does_not_fit_is_left_to_python(matrix, x):
    assert directly(matrix, x, "int8") is None


def test_a_tensor_in_other_order_is_copied(matrix):
    x = torch.randn(COLS, 2).T
    assert torch.equal(kernels.linear(x, matrix, activations="int8"), directly(matrix, x.contiguous(), "int8"))


def test_types_that_hand_nothing_out_are_not_used():
    assert not _native.use_tensor_type(int)
    assert not _native.use_tensor_type(3)
    assert _native.use_tensor_type(torch.Tensor)


def test_activations_that_are_not_finite_are_refused_and_leave_nothing(matrix):
    with pytest.raises(ValueError, match="finite"):
        directly(matrix, torch.full((2, COLS), torch.inf), "int8")
