"""Linear layers on packed weights, against the plain torch that specifies them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiles.cases import matrix

from tilepress import kernels, tiles
from tilepress.kernels import reference

INTEGERS = [
    *(f"int{bits}:g32" for bits in range(2, 9)),
    *(f"uint{bits}:g32" for bits in range(2, 9)),
    "int8:row",
    "int4:g16:fp32",
    "int4:g48:e8m0",
    "uint4:row",
    "uint8:g80:bf16",
]


def activations(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("density", [None, 0.5, 0.0])
@pytest.mark.parametrize("format", INTEGERS)
def test_int8_products_are_the_reference_to_the_bit(format, density, isa):
    weight = matrix(37, 150, density=1.0 if density is None else density)
    packed = tiles.pack(weight, format, sparse=density is not None)
    x, bias = activations(5, 150), activations(37, seed=1)
    assert torch.equal(kernels.linear_int8(x, packed, bias), reference.linear_int8(x, packed, bias))


@settings(max_examples=120, deadline=None)
@given(
    format=st.sampled_from(INTEGERS),
    rows=st.integers(1, 40),
    cols=st.integers(1, 200),
    batch=st.integers(1, 9),
    density=st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
    threads=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**32),
)
def test_any_shape_batch_density_and_thread_count(format, rows, cols, batch, density, threads, dtype, seed):
    packed = tiles.pack(
        matrix(rows, cols, 1.0 if density is None else density, seed), format, sparse=density is not None
    )
    x = activations(batch, cols, seed=seed, dtype=dtype)
    assert torch.equal(kernels.linear_int8(x, packed, threads=threads), reference.linear_int8(x, packed).to(dtype))


def test_extreme_values_reach_the_ends_of_the_integers(isa):
    weight = torch.full((16, 256), -1.0)
    weight[:, ::2] = 1.0
    packed = tiles.pack(weight, "int8:row")
    for x in (torch.full((1, 256), -3.0), torch.zeros(1, 256), weight[:1] * 1e30, weight[:1] * 1e-40):
        assert torch.equal(kernels.linear_int8(x, packed), reference.linear_int8(x, packed))


def test_the_result_is_close_to_the_product_it_stands_for():
    packed = tiles.pack(matrix(64, 512) / 64, "int8:g32")
    x = activations(3, 512)
    exact = x @ tiles.unpack(packed).T
    error = (kernels.linear_int8(x, packed) - exact).norm() / exact.norm()
    assert error < 0.01


def test_shapes_of_activations():
    packed = tiles.pack(matrix(20, 64), "int4:g32")
    x = activations(2, 3, 64)
    assert torch.equal(kernels.linear_int8(x, packed)[1, 2], kernels.linear_int8(x[1, 2], packed))
    assert kernels.linear_int8(x[:0], packed).shape == (0, 3, 20)
    assert kernels.linear_int8(x.transpose(0, 1), packed).shape == (3, 2, 20)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": torch.zeros(2, 63)}, ValueError, r"activations are \[..., 64\], not \[2, 63\]"),
        ({"x": torch.zeros(2, 64, dtype=torch.int8)}, TypeError, "float32, bfloat16 or float16 on the CPU"),
        ({"x": torch.full((2, 64), torch.inf)}, ValueError, "activations must be finite"),
        ({"x": torch.tensor([1.0, torch.nan]).repeat(2, 32)}, ValueError, "activations must be finite"),
        ({"bias": torch.zeros(21)}, ValueError, r"the bias is \[20\], not \[21\]"),
        ({"threads": 0}, ValueError, "at least one thread"),
        ({"matrix": tiles.pack(torch.ones(20, 64), "mxfp4")}, ValueError, "want integer weights"),
        ({"matrix": tiles.pack(torch.ones(20, 64), "int4:g32", operand_bits=16)}, ValueError, "in 8-bit tiles"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    good = {"x": torch.zeros(2, 64), "matrix": tiles.pack(torch.ones(20, 64), "int4:g32")}
    with pytest.raises(error, match=message):
        kernels.linear_int8(**(good | change))


def test_groups_too_long_for_32_bits_are_refused():
    packed = tiles.pack(torch.ones(1, 65552), "int8:row")
    with pytest.raises(ValueError, match="at most 65536 inputs"):
        kernels.linear_int8(torch.ones(65552), packed)


def test_a_matrix_that_changed_after_it_was_checked_is_refused():
    packed = tiles.pack(matrix(16, 64, density=0.5), "int4:g32", sparse=True)
    kernels.linear_int8(torch.ones(64), packed)
    packed.mask.fill_(255)
    for use in (lambda: kernels.linear_int8(torch.ones(64), packed), lambda: tiles.unpack(packed)):
        with pytest.raises(RuntimeError, match="the matrix changed while it was used"):
            use()
