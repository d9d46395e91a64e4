"""Float activations in any number of rows: each as if it were alone, and nothing read beyond them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.kernels.float_cases import (
    DTYPES,
    activations,
    assert_within_bound,
    groups_take,
    pack,
    variants,
)

from tilepress import kernels, tiles
from tilepress.kernels import reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("format", ["mxfp4", "int4:g32"])
def test_many_rows_are_cut_in_parts_where_blocks_are_few(format, dtype, isa):
    packed = pack(format, 37, 96, None)
    for batch in (150, 1100):
        assert_within_bound(activations(batch, 96, dtype=dtype), packed, threads=4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_a_row_is_the_same_in_any_batch_where_that_is_asked_for(format, dtype, isa):
    for density in (None, 0.5):
        packed = pack(format, 50, 300, density)
        x = activations(70, 300, dtype=dtype)
        with kernels.batch_invariant():
            whole = kernels.linear(x, packed)
            for batch in (1, 2, 3, 5, 8, 17, 33, 64):
                for threads in (1, 3):
                    assert torch.equal(kernels.linear(x[-batch:], packed, threads=threads), whole[-batch:])


@pytest.mark.parametrize("format", ["bf16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_the_order_of_a_batch_invariant_sum_is_the_reference(format, isa):
    if isa == "portable" and "avx2" in kernels.supported_isas():
        pytest.skip("plain x86-64 has no fused multiply-add")
    packed, bias = pack(format, 20, 150, 0.5), activations(20, seed=1)
    x = activations(9, 150)
    with kernels.batch_invariant():
        assert torch.equal(kernels.linear(x, packed, bias), reference.linear_in_order(x, packed, bias))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 2.0**100])
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("format", ["bf16", "fp16", "e4m3", "nf4:g64", "int4:g32", "uint4:g32", "int8:row", "mxfp4"])
def test_what_is_not_finite_or_too_large_stays_in_its_row(format, dtype, bad, isa):
    """Kernels of integers and of fp16 cannot take such a row; it must not change how the other rows are computed."""
    for density in (None, 0.5):
        packed = pack(format, 37, 150, density)
        for batch in (2, 3, 4, 16, 33):
            clean = activations(batch, 150, dtype=dtype)
            x = clean.clone()
            x[1, 7] = bad
            y = kernels.linear(x, packed)
            rest = torch.arange(batch) != 1
            assert torch.equal(y[rest], kernels.linear(clean, packed)[rest])
            met = tiles.unpack(packed)[:, 7] != 0
            assert not (y[1, met].abs() < 2.0**80).any()


@pytest.mark.parametrize(("format", "density"), [("mxfp4", None), ("bf16", 0.5), ("int8:row", None)])
def test_many_blocks_share_activations_and_the_last_has_none_beside_it(format, density, isa):
    packed = pack(format, 16 * 8 + 5, 150, density)
    for batch in (2, 16, 20):
        x = activations(batch, 150, dtype=torch.bfloat16)
        assert_within_bound(x, packed, variant="linear_f32_bf16_any_tiles", threads=1)


@pytest.mark.parametrize("format", ["bf16", "mxfp4", "int8:row", "uint4:g32"])
def test_few_inputs_in_a_thread_whose_memory_is_new(format, isa):
    """Threads keep memory from call to call: only before it has grown do sanitizers see a write past its end."""
    for cols in (3, 33, 70):
        packed = pack(format, 37, cols, None)
        for variant in variants(packed):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(assert_within_bound, activations(20, cols), packed, variant=variant, threads=1).result()


@pytest.mark.parametrize(
    ("format", "density"), [("mxfp4", None), ("bf16", 0.5), ("e4m3", None), ("int4:g32", None), ("uint4:g32", 0.5)]
)
def test_rows_as_they_were_given_and_nothing_behind_them(format, density, isa):
    packed = pack(format, 16 * 9, 128, density)
    for batch in (2, 16, 17, 32, 40, 48):
        x = torch.full((64, 128), torch.nan, dtype=torch.bfloat16)
        x[:batch] = activations(batch, 128, dtype=torch.bfloat16)
        assert_within_bound(x[:batch], packed, variant="linear_f32_bf16_any_tiles")
        if groups_take(packed):
            assert_within_bound(x[:batch], packed, variant="linear_f32_bf16_any_groups")


@pytest.mark.parametrize(("format", "density"), [("int4:g32", None), ("int4:g32", 0.5), ("uint4:g64", None)])
def test_rows_give_the_same_as_they_were_given_and_laid_out_in_tiles(format, density, isa):
    packed = pack(format, 16 * 20, 128, density)
    for batch in (3, 16, 21):
        x = activations(batch, 128, dtype=torch.bfloat16)
        ours = [kernels.linear(x, packed, variant="linear_f32_bf16_any_groups", threads=threads) for threads in (1, 2)]
        assert torch.equal(*ours)  # one thread has more blocks than pay without laying rows out
