"""Linear layers on packed weights, against the plain torch that specifies them."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pairs import in_turn
from tests.tiles.cases import matrix

from tilepress import kernels, tiles
from tilepress.formats import Quantized, parse, parse_weight
from tilepress.formats.tensors import SCALE_DTYPES
from tilepress.kernels import reference
from tilepress.kernels.linear import INTEGER_VARIANTS

OPERATIONS = (*INTEGER_VARIANTS, "decode_i8_int", "quantize_i8_fp", "quantize_bfp_fp")  # see tests/conftest.py

INTEGERS = [
    *(f"int{bits}:g32" for bits in range(2, 9)),
    *(f"uint{bits}:g32" for bits in range(2, 9)),
    "int8:row",
    "int4:g16:fp32",
    "int4:g48:e8m0",
    "uint4:row",
    "uint4:g32:bf16",
    "uint8:g80:bf16",
]


SHORT = ["int8", "bfp:g16:m4", "bfp:g32:m7", "bfp:g32:m8", "bfp:g64:m8", "bfp:g128:m1"]
LONG = ["bfp:g64:m9", "bfp:g32:m14", "bfp:g128:m15", "bfp:g64:m16"]
ROUNDINGS = [*SHORT, *LONG]


def reference_of(x, packed, rounding, bias=None):
    return reference.linear_integer(x, packed, None if rounding == "int8" else parse(rounding), bias)


def variants(packed, rounding):
    """Those that take such weights."""
    group, mantissa = (0, 0) if rounding == "int8" else (parse(rounding).group, parse(rounding).mantissa)
    segment, _ = reference.cut(packed, group)
    int8 = (segment == 32 or segment % 64 == 0) and mantissa <= 14
    bf16 = segment == 32 and packed.format.element.bits <= 4 and mantissa <= 8
    takes = {
        "linear_f32_i8_int": True,
        "linear_f32_i8_int_tiles": int8,
        "linear_f32_bf16_any_groups": bf16,
        "matmul_f32_i8_i8": int8,
        "matmul_f32_bf16_bf16_groups": bf16,
    }
    assert takes.keys() == set(INTEGER_VARIANTS)
    return [variant for variant in takes if takes[variant]]


def activations(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@cache
def case(format, density, rounding, batch):
    """Arguments of `kernels.linear`, and what it is to give: the same for every instruction set."""
    weight = matrix(37, 150, density=1.0 if density is None else density)
    packed = tiles.pack(weight, format, sparse=density is not None)
    arguments = activations(batch, 150), packed, activations(37, seed=1)
    return arguments, reference_of(arguments[0], packed, rounding, arguments[2])


@cache
def case_of(rows, cols, batch, format, density=None, rounding="int8", exponent=0):
    """(Activations, packed weights, their product) of any size and without a bias, as `case`."""
    weight = matrix(rows, cols, 1.0 if density is None else density) * 2.0**exponent
    packed = tiles.pack(weight, format, sparse=density is not None)
    x = activations(batch, cols)
    return x, packed, reference_of(x, packed, rounding)


@pytest.mark.parametrize(("format", "rounding", "density"), in_turn(INTEGERS, ROUNDINGS, [None, 0.5, 0.0]))
def test_integer_products_are_the_reference_to_the_bit(format, density, rounding, isa):
    arguments, expected = case(format, density, rounding, 5)
    assert torch.equal(kernels.linear(*arguments, activations=rounding), expected)


@pytest.mark.parametrize("exponent", [-126, -121, -119, -117, 110])
@pytest.mark.parametrize("rounding", ["int8", "bfp:g32:m7"])
def test_scales_at_the_ends_of_their_range(rounding, exponent, isa):
    """Of which some kernels take sixteenths."""
    x, packed, expected = case_of(32, 96, 16, "int4:g32", rounding=rounding, exponent=exponent)
    for variant in variants(packed, rounding):
        assert torch.equal(kernels.linear(x, packed, activations=rounding, variant=variant), expected)


BATCHES = [(1, 17), (5, 40), (16, 70)]
TILED = ["int4:g32", "int8:row", "uint4:g64", "uint8:g128:bf16", "int3:g32", "uint3:g32"]
TILED_ROUNDINGS = ["int8", "bfp:g32:m7", "bfp:g32:m8", "bfp:g64:m8", "bfp:g64:m13", "bfp:g64:m16"]


@pytest.mark.parametrize("density", [None, 0.5])
@pytest.mark.parametrize(("format", "rounding", "batches"), in_turn(TILED, TILED_ROUNDINGS, BATCHES))
def test_tiles_give_the_same_bits(format, density, rounding, batches, isa):
    """What a matrix unit multiplies, or its twin in plain C++."""
    for batch in batches:
        arguments, expected = case(format, density, rounding, batch)
        for variant in variants(arguments[1], rounding):
            assert torch.equal(kernels.linear(*arguments, activations=rounding, variant=variant), expected), variant


@pytest.mark.parametrize("density", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("format", ["int2:g32", "int3:g32", "int4:g32", "uint4:g32", "int7:g128", "int8:row"])
def test_sparse_rows_longer_than_what_is_unpacked_at_a_time(format, density, isa):
    """Non-zeros of a span are more than the memory that some kernels unpack them to, a part after the other."""
    x, packed, expected = case_of(20, 2500, 6, format, density)
    for batch in (1, 6):
        for variant in variants(packed, "int8"):
            y = kernels.linear(x[:batch], packed, activations="int8", variant=variant)
            assert torch.equal(y, expected[:batch]), (variant, batch)


def test_tiles_need_segments_that_fill_them():
    packed = tiles.pack(torch.ones(20, 96), "int4:g48")
    with pytest.raises(ValueError, match="matmul_f32_i8_i8 wants groups of 32 inputs or a multiple of 64"):
        kernels.linear(torch.ones(1, 96), packed, activations="int8", variant="matmul_f32_i8_i8")
    with pytest.raises(ValueError, match="matmul_f32_bf16_bf16_groups wants codes of at most 4 bits in groups of 32"):
        kernels.linear(torch.ones(1, 96), packed, activations="int8", variant="matmul_f32_bf16_bf16_groups")
    packed = tiles.pack(torch.ones(20, 96), "int4:g32")
    with pytest.raises(ValueError, match=r"matmul_f32_i8_i8 wants .* activations of at most 14 bits"):
        kernels.linear(torch.ones(1, 96), packed, activations="bfp:g32:m15", variant="matmul_f32_i8_i8")
    with pytest.raises(ValueError, match=r"_any_groups wants .* activations of at most 8"):
        kernels.linear(torch.ones(1, 96), packed, activations="bfp:g32:m9", variant="linear_f32_bf16_any_groups")


@pytest.mark.parametrize("rounding", ["int8", "bfp:g32:m8"])
@pytest.mark.parametrize(("format", "density"), [("int4:g32", None), ("int8:row", 0.5)])
def test_rows_longer_than_a_span_in_one_row_panel_and_in_two(format, density, rounding, isa):
    x, packed, expected = case_of(37, 2500, 20, format, density, rounding)
    for variant in variants(packed, rounding):
        for batch in (7, 20):
            y = kernels.linear(x[:batch], packed, activations=rounding, variant=variant)
            assert torch.equal(y, expected[:batch]), (variant, batch)


@settings(max_examples=200)
@given(
    format=st.sampled_from([*INTEGERS, "int4:g2048", "int4:g1040"]),
    rounding=st.sampled_from(ROUNDINGS),
    rows=st.integers(1, 70),
    cols=st.one_of(st.integers(1, 200), st.integers(1000, 5000)),
    batch=st.one_of(st.integers(1, 9), st.sampled_from([17, 40])),
    density=st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
    threads=st.integers(1, 9),
    variant=st.integers(0, len(INTEGER_VARIANTS)),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**32),
)
def test_any_shape_batch_density_and_thread_count(
    format, rounding, rows, cols, batch, density, threads, variant, dtype, seed
):
    rows, batch = (rows, batch) if cols <= 200 else (min(rows, 33), min(batch, 5))
    weight = matrix(rows, cols, 1.0 if density is None else density, seed)
    packed = tiles.pack(weight, format, sparse=density is not None)
    x = activations(batch, cols, seed=seed, dtype=dtype)
    variant = (["", *variants(packed, rounding)] * len(INTEGER_VARIANTS))[variant]
    y = kernels.linear(x, packed, activations=rounding, variant=variant, threads=threads)
    assert torch.equal(y, reference_of(x, packed, rounding).to(dtype))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("batch", [150, 1100])
@pytest.mark.parametrize(
    ("format", "rounding"), [("int8:row", "int8"), ("uint4:g32", "bfp:g32:m7"), ("int4:g32", "bfp:g32:m8")]
)
def test_many_rows_are_cut_in_parts_where_blocks_are_few(format, rounding, batch, threads, isa):
    x, packed, expected = case_of(37, 96, batch, format, rounding=rounding)
    for variant in ["", *variants(packed, rounding)]:
        assert torch.equal(kernels.linear(x, packed, activations=rounding, variant=variant, threads=threads), expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("format", "rounding"), [("int8:row", "int8"), ("uint4:row", "int8"), ("int4:g64", "bfp:g64:m12")]
)
def test_many_rows_of_several_spans_and_many_blocks(format, rounding, threads, isa):
    x, packed, expected = case_of(330, 4160, 140, format, rounding=rounding)
    y = kernels.linear(x, packed, activations=rounding, variant="matmul_f32_i8_i8", threads=threads)
    assert torch.equal(y, expected)


@cache
def extremes(rounding):
    """[(activations, packed weights, what `kernels.linear` is to give)]."""
    weight = torch.full((16, 2048), -1.0)
    weight[:, ::2] = 1.0
    rows = [torch.full((1, 2048), -3.0), torch.zeros(1, 2048), weight[:1] * 60000, weight[:1] * 1e-7]
    rows += [weight[:1] * 1e30, weight[:1] * 1e-40][: 2 * (rounding == "int8")]
    formats = ("int8:row", "uint8:g1024", "int4:g128", "int8:g128", "uint8:g128:bf16")
    packed = [tiles.pack(weight, format) for format in formats]
    return [(x, one, reference_of(x, one, rounding)) for one in packed for x in rows]


@cache
def largest_nine_bits():
    """Activations of eight bits and a sign in which 255 has no addends, alone, and with -255 in its group; and rows
    that share lines of bytes, at both ends and around zero.
    """
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-254, 255, (3, 256), generator=generator).float()
    x[1, 40], x[1, 100] = 255, -255
    x[2, 40], x[2, 41], x[2, 200] = 255, -255, 255
    packed = [tiles.pack(torch.randn(48, 256, generator=generator), format) for format in ("int4:g32", "uint4:g32")]
    packed.append(tiles.pack(torch.randn(48, 256, generator=generator), "int8:row", mask=torch.rand(48, 256) > 0.5))
    ends = torch.tensor([-255.0, -254.0, -1.0, 0.0, 1.0, 254.0, 255.0])
    many = ends[torch.randint(0, len(ends), (11, 256), generator=generator)]
    several = (x, x[:1], x[1:2], x[2:], many)
    return [(rows, one, reference_of(rows, one, "bfp:g32:m8")) for one in packed for rows in several]


def test_the_largest_values_of_nine_bits(isa):
    for x, packed, expected in largest_nine_bits():
        assert torch.equal(kernels.linear(x, packed, activations="bfp:g32:m8"), expected)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_extreme_values_reach_the_ends_of_the_integers(rounding, isa):
    for x, packed, expected in extremes(rounding):
        assert torch.equal(kernels.linear(x, packed, activations=rounding), expected)


@cache
def largest_sums(format, rounding):
    """Packed weights and [(activations, what `kernels.linear` is to give)]: all codes at one end, zero points at the
    other, activations of one sign."""
    format = parse_weight(format)
    codes = torch.zeros(64, 2048, dtype=torch.uint8)
    codes[::2] = format.element.codes - 1
    scales = torch.full((64, format.scaling.groups(2048)), 3.0, dtype=SCALE_DTYPES[format.scaling.type])
    zeros = torch.tensor([0, 255, 7, 254]).to(torch.uint8).repeat_interleave(16)[:, None].expand(scales.shape)
    packed = tiles.pack_codes(Quantized(codes, scales, zeros.contiguous()), format)
    rows = torch.tensor([1.0, -1.0, 0.37]).repeat(6)[:17, None].expand(17, 2048)
    return packed, [(rows[:batch], reference_of(rows[:batch], packed, rounding)) for batch in (1, 5, 17)]


@pytest.mark.parametrize("rounding", ["int8", "bfp:g32:m7", "bfp:g128:m8", "bfp:g128:m16"])
@pytest.mark.parametrize("format", ["uint2:row", "uint4:row", "uint4:g64", "uint4:g32:bf16", "uint5:g512", "uint8:row"])
def test_zero_points_at_the_ends_of_their_range(format, rounding, isa):
    packed, cases = largest_sums(format, rounding)
    for x, expected in cases:
        for variant in variants(packed, rounding):
            assert torch.equal(kernels.linear(x, packed, activations=rounding, variant=variant), expected)


@cache
def halfway(exponent):
    """Quotients halfway between two integers and their neighbours, by scales of any bits. Weights of 1 on the diagonal
    give back each activation."""
    packed = tiles.pack(torch.eye(256), "int8:row")
    largest = torch.rand(512, 1, generator=torch.Generator().manual_seed(0)) + 1
    halves = (torch.arange(255) - 127 + 0.5) * (largest / 127)
    halves[1::3] = halves[1::3].nextafter(torch.tensor(torch.inf))
    halves[2::3] = halves[2::3].nextafter(torch.tensor(-torch.inf))
    x = torch.ldexp(torch.cat([largest, halves.clamp(-largest, largest)], 1), torch.tensor(exponent))
    return x, packed, reference_of(x, packed, "int8")


@pytest.mark.parametrize("exponent", [-140, -126, -64, -57, -56, 0, 63, 64, 71, 120])
def test_int8_is_rounded_as_a_division_rounds(exponent, isa):
    x, packed, expected = halfway(exponent)
    assert torch.equal(kernels.linear(x, packed, activations="int8"), expected)


def test_activations_beyond_fp16_saturate_in_block_floating_point():
    packed = tiles.pack(torch.ones(16, 32), "int8:row")
    x = torch.full((1, 32), 1e9)
    y = kernels.linear(x, packed, activations="bfp:g32:m8")
    assert torch.equal(y, kernels.linear(x.clamp(max=65504), packed, activations="bfp:g32:m8"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_overflow_as_torch_does(dtype):
    packed = tiles.pack(torch.full((16, 1024), 3e5), "int8:row")
    x = torch.tensor([[1.0], [-1.0], [1e-6]]).repeat(1, 1024).to(dtype) * (2.0**110 if dtype == torch.bfloat16 else 1)
    y = kernels.linear(x, packed, activations="int8")
    assert torch.equal(y, reference_of(x, packed, "int8").to(dtype))
    assert dtype == torch.bfloat16 or y[0].isinf().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_are_rounded_as_torch_rounds(dtype, isa):
    """Sums of zero and a bias of any bits: both signs, all exponents, ties and their neighbours, NaN."""
    low = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    bits = ((torch.arange(0, 1 << 16, 7)[:, None] << 16) + torch.tensor(low)).flatten()
    bias = torch.where(bits < 1 << 31, bits, bits - (1 << 32)).to(torch.int32).view(torch.float32)[:-5]
    packed = tiles.pack(torch.zeros(len(bias), 32), "int8:row")
    y = kernels.linear(torch.ones(2, 32, dtype=dtype), packed, bias, activations="int8")
    torch.testing.assert_close(y, (bias + 0).to(dtype).repeat(2, 1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("batch", [1, 16, 20])
def test_results_of_many_blocks_and_of_a_part_of_one(isa, batch, dtype):
    x, bias = torch.randn(batch, 64).to(dtype), torch.randn(9 * 16 + 5)
    packed = tiles.pack(torch.randn(len(bias), 64), "int4:g32")
    sums = kernels.linear(x.float(), packed, activations="int8", threads=1)
    assert torch.equal(kernels.linear(x, packed, activations="int8", threads=1), sums.to(dtype))
    assert torch.equal(kernels.linear(x, packed, bias, activations="int8", threads=1), (sums + bias).to(dtype))


def test_the_result_is_close_to_the_product_it_stands_for():
    packed = tiles.pack(matrix(64, 512) / 64, "int8:g32")
    x = activations(3, 512)
    exact = reference.linear(x, packed)
    for rounding, most in (("int8", 0.01), ("bfp:g32:m8", 0.01), ("bfp:g32:m4", 0.15)):
        error = (kernels.linear(x, packed, activations=rounding) - exact).norm() / exact.norm()
        assert error < most


def test_shapes_of_activations():
    packed = tiles.pack(matrix(20, 64), "int4:g32")
    x = activations(2, 3, 64)
    y = kernels.linear(x, packed, activations="int8")
    assert torch.equal(y[1, 2], kernels.linear(x[1, 2], packed, activations="int8"))
    assert kernels.linear(x[:0], packed, activations="int8").shape == (0, 3, 20)
    assert torch.equal(kernels.linear(x.transpose(0, 1), packed, activations="int8"), y.transpose(0, 1))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": torch.zeros(2, 63)}, ValueError, r"activations are \[..., 64\], not \[2, 63\]"),
        ({"x": torch.zeros(2, 64, dtype=torch.int8)}, TypeError, "float32, bfloat16 or float16 on the CPU"),
        ({"x": torch.full((2, 64), torch.inf)}, ValueError, "activations must be finite"),
        ({"x": torch.tensor([1.0, torch.nan]).repeat(2, 32)}, ValueError, "activations must be finite"),
        ({"bias": torch.zeros(21)}, ValueError, r"the bias is \[20\], not \[21\]"),
        ({"bias": torch.zeros(20, device="meta")}, TypeError, "the bias is of floats on the CPU, not .* on meta"),
        ({"bias": torch.zeros(20, dtype=torch.int64)}, TypeError, "the bias is of floats on the CPU, not torch.int64"),
        ({"x": torch.zeros(2, 64, device="meta")}, TypeError, "on the CPU, not torch.float32 on meta"),
        ({"threads": 0}, ValueError, "at least one thread"),
        ({"activations": "bfp:g32:m17"}, ValueError, "mantissa must be an int from 1 to 16, got 17"),
        ({"activations": "int4:g32"}, ValueError, "activations are float, bf16, int8 or bfp.* not int4:g32"),
        ({"activations": "bfq:g32:m8"}, ValueError, "unknown format 'bfq:g32:m8'"),
        ({"matrix": tiles.pack(torch.ones(20, 64), "mxfp4")}, ValueError, "want integer weights"),
        ({"matrix": tiles.pack(torch.ones(20, 64), "int4:g32", operand_bits=16)}, ValueError, "in 8-bit tiles"),
    ],
)
@pytest.mark.parametrize("rounding", ["int8", "bfp:g32:m8"])
def test_bad_input_is_refused(change, error, message, rounding):
    good = {"x": torch.zeros(2, 64), "matrix": tiles.pack(torch.ones(20, 64), "int4:g32"), "activations": rounding}
    with pytest.raises(error, match=message):
        kernels.linear(**(good | change))


# Densities such that codes end anywhere in the memory that kernels unpack them to.
@pytest.mark.parametrize("density", [0.02, 0.13, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("bits", [255, 0])
@pytest.mark.parametrize("format", ["int4:g32", "int8:row", "uint4:g32", "int3:g32"])
def test_a_matrix_that_changed_after_it_was_checked_is_refused(format, bits, density, isa):
    packed = tiles.pack(matrix(16, 2048, density=density), format, sparse=True)
    x = torch.ones(1, 2048)
    kernels.linear(x, packed, activations="int8")
    packed.mask.fill_(bits)
    calls = [lambda rows=rows: kernels.linear(x.expand(rows, -1), packed, activations="int8") for rows in (1, 9)]
    for use in (*calls, lambda: tiles.unpack(packed)):
        with pytest.raises(RuntimeError, match="the matrix changed while it was used"):
            use()
