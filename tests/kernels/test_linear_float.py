"""Linear layers with float activations: within the stated bound of the exact product, by every variant."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.float_cases import (
    DTYPES,
    activations,
    assert_near,
    assert_within_bound,
    exact_and_bound,
    pack,
    variants,
)
from tests.tiles.cases import FORMATS, matrix

from tilepress import kernels, tiles
from tilepress.kernels import reference
from tilepress.kernels.linear import FLOAT_VARIANTS


@cache
def case(format, density):
    """(Packed weights, bias, [(activations, what to expect if they are taken as float, and as bf16)]): the same for
    every variant and every instruction set."""
    packed, bias = pack(format, 37, 150, density), activations(37, seed=1)
    rows = [activations(batch, 150) for batch in (1, 2, 3, 5, 20)]
    return packed, bias, [(x, *(exact_and_bound(x, packed, bias, taken) for taken in ("float", "bf16"))) for x in rows]


@pytest.mark.parametrize("density", [None, 0.5, 0.0])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_every_format_by_every_variant(format, density, isa):
    packed, bias, rows = case(format, density)
    for variant in variants(packed):
        for x, exactly, rounded in rows:
            assert_near(
                kernels.linear(x, packed, bias, variant=variant), x.dtype, *(rounded if "f16" in variant else exactly)
            )


@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4", "mxfp8"])
def test_float32_has_the_accuracy_of_float32(format, isa):
    """On every instruction set and for any number of rows, unless bf16 is asked for."""
    for density in (None, 0.5):
        packed = pack(format, 48, 320, density)
        for batch in (1, 2, 4, 7, 12, 16, 17, 32, 33, 100):
            x = activations(batch, 320)
            exact = reference.linear(x, packed)
            assert (kernels.linear(x, packed) - exact).abs().max() < 3e-5 * exact.abs().max()
            assert "bf16" not in kernels.linear_kernel(packed, batch).split("/")[0]


@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_float32_may_be_rounded_to_bf16_where_that_is_asked_for(format, isa):
    packed = pack(format, 48, 320, None)
    for batch in (1, 3, 16, 40, 100):
        x, bias = activations(batch, 320), activations(48, seed=1)
        y = kernels.linear(x, packed, bias, activations="bf16")
        assert y.dtype == torch.float32
        assert_within_bound(x, packed, bias, activations="bf16")
        kernel = kernels.linear_kernel(packed, batch, activations="bf16")
        assert kernel == kernels.linear_kernel(packed, batch, torch.bfloat16)
        if "bf16" in kernel.split("/")[0]:  # then it is what bf16 activations give, before their results are rounded
            half = kernels.linear(x.to(torch.bfloat16), packed, bias)
            assert torch.equal(y.to(torch.bfloat16), half)


@settings(max_examples=250)
@given(
    format=st.sampled_from(FORMATS),
    rows=st.integers(1, 70),
    cols=st.one_of(st.integers(1, 200), st.integers(1000, 5000)),
    batch=st.one_of(st.integers(1, 9), st.sampled_from([16, 17, 33, 40, 70])),
    density=st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
    threads=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    variant=st.integers(0, len(FLOAT_VARIANTS)),
    operand_bits=st.sampled_from([None, 16]),
    seed=st.integers(0, 2**32),
)
def test_any_shape(format, rows, cols, batch, density, threads, dtype, variant, operand_bits, seed):
    packed = pack(format, rows, cols, density, seed, operand_bits=operand_bits)
    x = activations(batch, cols, seed=seed) / 64  # so that no result leaves float16
    assert_within_bound(x.to(dtype), packed, variant=(["", *variants(packed)] * 2)[variant], threads=threads)


@pytest.mark.parametrize("density", [None, 0.5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_hot_activations_read_single_weights(dtype, density, isa):
    """Nothing can hide in a sum of one product: every weight comes out, rounded at most twice."""
    for format in ("int4:g32", "mxfp4", "e4m3", "bf16", "uint4:g32", "uint2:g64", "uint6:g32", "nf4:g32"):
        packed = pack(format, 33, 70, density)
        for variant in variants(packed):
            y = kernels.linear(torch.eye(70, dtype=dtype), packed, variant=variant)
            assert torch.allclose(y.T.float(), tiles.unpack(packed), rtol=2**-7, atol=1e-30)
            assert ((y.T == 0) == (tiles.unpack(packed) == 0)).all()


@pytest.mark.parametrize("exponent", [-110, -3, 0, 20, 120])
def test_powers_of_two_for_scales_of_any_size(exponent, isa):
    """Large and small ones in one group of one neuron, where all the rest are moderate: no normal number is rounded."""
    weight = matrix(16 * 8, 150) / 1024
    weight[40, 64:96] *= 2.0**exponent
    packed = tiles.pack(weight, "mxfp4")
    x = torch.eye(150, dtype=torch.bfloat16)
    for variant in variants(packed):
        for rows in (x[:4], x[64:80], x[60:90], x):
            y = kernels.linear(rows, packed, variant=variant, threads=1)
            assert ((y.double() - rows.double() @ tiles.unpack(packed).double().T).abs() < 2.0**-126).all()


def test_bf16_weights_and_activations_lose_nothing_but_in_sums(isa):
    packed = pack("bf16", 40, 64, None)
    x = activations(6, 64, dtype=torch.bfloat16).float()
    exact = reference.linear(x, packed)
    bound = 64 * 2.0**-23 * (x.double().abs() @ tiles.unpack(packed).double().abs().T)
    for variant in variants(packed):
        assert ((kernels.linear(x, packed, variant=variant) - exact).abs() <= bound).all()


@pytest.mark.parametrize("format", ["bf16", "int4:g32", "mxfp4", "e4m3:g32", "bf16:g32"])
def test_infinite_and_undefined_activations_pass_through(format, isa):
    packed = tiles.pack(torch.full((16, 64), 6.0), format)
    x = torch.zeros(4, 64)
    x[0, 5], x[1, 6], x[2, 7], x[3, 8] = torch.inf, torch.nan, 1.0, 7e28  # the last is nearly 2^96
    for variant in ["", *variants(packed)]:
        for rows in (slice(0, 4), slice(0, 2), slice(3, 4)):
            y = kernels.linear(x[rows], packed, variant=variant)
            exact = x[rows].sum(1, keepdim=True) * 6
            assert torch.allclose(y, exact.expand(-1, 16), rtol=2**-7, equal_nan=True)


def test_the_kernel_that_runs_can_be_asked_for(isa):
    packed = tiles.pack(torch.ones(16, 64), "mxfp4")
    for batch in (1, 4, 16, 512):
        operation, where = kernels.linear_kernel(packed, batch, torch.bfloat16).split("/")
        assert operation in FLOAT_VARIANTS and where in kernels.registered()[operation]
    integers = tiles.pack(torch.ones(16, 64), "int4:g32")
    assert kernels.linear_kernel(integers, 1, activations="int8").startswith("linear_f32_i8_int/")


def test_an_unknown_variant_is_refused_with_the_list():
    packed = tiles.pack(torch.ones(16, 64), "mxfp4")
    listed = "linear_f32_i8_int, .*matmul_f32_f32_f32, matmul_f32_bf16_bf16; not magic"
    with pytest.raises(ValueError, match=listed):
        kernels.linear(torch.ones(1, 64), packed, variant="magic")


def test_sums_of_groups_need_groups_of_whole_tiles():
    packed = tiles.pack(torch.ones(16, 64), "int4:g16")
    with pytest.raises(ValueError, match=r"_any_groups wants codes of at most 6 bits.* of a multiple of 32"):
        kernels.linear(torch.ones(1, 64), packed, variant="linear_f32_bf16_any_groups")


@pytest.mark.parametrize("density", [0.02, 0.13, 0.5, 0.8])
@pytest.mark.parametrize("format", ["mxfp4", "bf16", "e4m3", "uint4:g32", "fp16", "nf4"])
def test_a_matrix_that_changed_is_refused(format, density, isa):
    packed = pack(format, 16, 2048, density)
    usable = variants(packed)
    packed.native  # noqa: B018
    packed.mask.fill_(255)
    for variant in usable:
        for batch in (1, 20):
            with pytest.raises(RuntimeError, match="the matrix changed while it was used"):
                kernels.linear(torch.ones(batch, 2048), packed, variant=variant)
