"""Native packing against the slow reference packer and against the formats' own arithmetic, byte for byte."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiles.cases import FORMATS, assert_same_bytes, matrix, table_format
from tilepress import tiles
from tilepress.formats import Quantized, WeightFormat, dequantize, parse_weight, quantize
from tilepress.tiles import reference

OPERATIONS = (
    "quantize_any_f32",
    "dequantize_f32_any",
    "pack_tiles_codes",
    "unpack_codes_tiles",
)  # see tests/conftest.py
OPERANDS = [8, 16]


def widths(format: WeightFormat) -> list[int]:
    return [bits for bits in OPERANDS if bits >= format.element.bits]


def expected(weight, format, keep):
    """What unpacking must give: quantised and dequantised without any packing, zero where dropped."""
    values = dequantize(quantize(weight, format, sparse=keep is not None), format)
    return values if keep is None else torch.where(keep, values, 0.0)


@cache
def reference_case(format, sparse):
    """(Weights, their codes, the mask of those that are kept, operand width → tiles by the reference): the same for
    every instruction set."""
    weight = matrix(19, 70, density=0.6)
    keep = weight != 0 if sparse else None
    quantized = quantize(weight, format, sparse=sparse)
    return weight, quantized, keep, {bits: reference.pack(quantized, format, keep, bits) for bits in widths(format)}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_native_bytes_are_the_reference_bytes(format, sparse, isa):
    weight, quantized, keep, tiles_of_reference = reference_case(format, sparse)
    for operand_bits, slow in tiles_of_reference.items():
        assert_same_bytes(tiles.pack(weight, format, sparse=sparse, operand_bits=operand_bits), slow)
        assert_same_bytes(tiles.pack_codes(quantized, format, mask=keep, operand_bits=operand_bits), slow)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_unpacking_is_exact(format, sparse, isa):
    weight, quantized, keep, values = unpacked_case(format, sparse)
    for operand_bits in widths(format):
        packed = tiles.pack(weight, format, sparse=sparse, operand_bits=operand_bits)
        assert torch.equal(tiles.unpack(packed), values)
        assert_unpacked(tiles.unpack_codes(packed), quantized, keep)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_the_reference_unpacks_what_native_code_packs(format, sparse):
    weight, quantized, keep, _ = unpacked_case(format, sparse)
    for operand_bits in widths(format):
        packed = tiles.pack(weight, format, sparse=sparse, operand_bits=operand_bits)
        assert_unpacked(reference.unpack(packed), quantized, keep)


@cache
def unpacked_case(format, sparse):
    """(Weights, their codes, the mask of those that are kept, the values of what is unpacked)."""
    weight = matrix(37, 131, density=0.5, seed=1)
    keep = weight != 0 if sparse else None
    return weight, quantize(weight, format, sparse=sparse), keep, expected(weight, format, keep)


def assert_unpacked(unpacked, quantized, keep):
    codes, mask = unpacked
    assert torch.equal(codes.codes, quantized.codes if keep is None else torch.where(keep, quantized.codes, 0))
    assert_equal_or_absent(codes.scales, quantized.scales)
    assert_equal_or_absent(codes.zeros, quantized.zeros)
    assert_equal_or_absent(mask, keep)


def assert_equal_or_absent(array, expected):
    assert (array is None) == (expected is None)
    assert array is None or torch.equal(array, expected)


@settings(max_examples=150)
@given(
    format=st.sampled_from(FORMATS),
    rows=st.integers(1, 40),
    cols=st.integers(1, 200),
    density=st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.0]),
    sparse=st.booleans(),
    threads=st.integers(1, 5),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**32),
)
def test_any_shape_density_and_thread_count(format, rows, cols, density, sparse, threads, dtype, seed):
    weight = matrix(rows, cols, density, seed, dtype)
    keep = weight != 0 if sparse else None
    packed = tiles.pack(weight, format, sparse=sparse, threads=threads)
    assert_same_bytes(packed, tiles.pack_codes(quantize(weight, format, sparse=sparse), format, mask=keep))
    assert packed.nonzeros == (int(keep.sum()) if sparse else rows * cols)
    assert torch.equal(tiles.unpack(packed, threads=threads), expected(weight, format, keep))


def extremes() -> torch.Tensor:
    """Values that trip careless rounding: both zeros, subnormals, neighbours of ties, the largest floats."""
    tiny, huge = torch.finfo(torch.float32).smallest_normal, torch.finfo(torch.float32).max
    values = [
        0.0,
        -0.0,
        tiny,
        -tiny,
        tiny / 2**20,
        2.0**-149,
        1e-30,
        1e30,
        huge,
        -huge,
        0.5,
        1.5,
        2.5,
        -3.5,
        6.0,
        65504.0,
    ]
    row = torch.tensor(values)
    ties = torch.nextafter(row, torch.full_like(row, torch.inf))
    ties = torch.where(torch.isfinite(ties), ties, row)
    return torch.stack([row, -row, ties, row.flip(0), torch.full_like(row, tiny / 2), torch.zeros_like(row)]).repeat(
        3, 5
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_extreme_values(format, sparse, isa):
    weight = extremes()
    keep = torch.ones_like(weight, dtype=torch.bool) if sparse else None
    quantized = quantize(weight, format, sparse=sparse)
    packed = tiles.pack(weight, format, mask=keep)
    assert_same_bytes(packed, tiles.pack_codes(quantized, format, mask=keep))
    wanted = dequantize(quantized, format)
    assert torch.equal(tiles.unpack(packed).view(torch.int32), wanted.view(torch.int32))


def test_a_mask_keeps_zeros_and_drops_weights_and_their_range():
    weight = torch.tensor([[1000.0, 0.0, 3.0, -7.0] * 8])
    mask = torch.tensor([[False, True, True, True] * 8])
    packed = tiles.pack(weight, "int4:g32", mask=mask)
    assert packed.nonzeros == 24
    assert torch.equal(tiles.unpack(packed), torch.where(mask, weight, 0.0))


def test_dropped_weights_may_be_anything():
    weight = torch.tensor([[1.0, float("nan"), float("inf"), 2.0]])
    mask = torch.tensor([[True, False, False, True]])
    assert tiles.unpack(tiles.pack(weight, "bf16", mask=mask)).tolist() == [[1.0, 0.0, 0.0, 2.0]]


@pytest.mark.parametrize("name", ["int4:g32", "uint4:g32", "nf4:g32", "mxfp4", "e4m3:g32:fp32"])
def test_given_scales_are_used(name):
    format = parse_weight(name)
    weight = matrix(20, 100, seed=5)
    smaller = quantize(weight * 0.7, format)
    packed = tiles.pack(weight, format, scales=smaller.scales, zeros=smaller.zeros)
    unpacked, _ = tiles.unpack_codes(packed)
    assert torch.equal(unpacked.scales, smaller.scales)
    assert_equal_or_absent(unpacked.zeros, smaller.zeros)
    halves = tiles.pack(weight, format)
    assert not torch.equal(packed.codes, halves.codes)
    with_own = tiles.pack(weight, format, **{k: getattr(quantize(weight, format), k) for k in ("scales", "zeros")})
    assert_same_bytes(with_own, halves)


def test_padding_costs_nothing_in_the_reported_size():
    """17 × 33 needs four tiles of space, but its size is that of 561 weights."""
    packed = tiles.pack(matrix(17, 33), "int8:g32")
    assert packed.bits_per_weight == pytest.approx(8 + 2 * 17 * 16 / (17 * 33))
    assert packed.nbytes - packed.padding_bytes == 17 * 33 + 2 * 17 * 2
    sparse = tiles.pack(matrix(17, 33, density=0.5), "int8:g32", sparse=True)
    offsets = 3 * 8
    assert sparse.nbytes - sparse.padding_bytes == -(-(sparse.nonzeros * 8 + 17 * 33) // 8) + 2 * 17 * 2 + offsets


@pytest.mark.parametrize("density", [1.0, 0.5, 0.2, 0.05, 0.0])
@pytest.mark.parametrize("name", ["bf16", "int8:g32", "mxfp4", "int4:g32", "uint4:g128", "int3:g32", "nf4:g64"])
def test_stored_bytes_are_the_formula_within_one_percent(name, density):
    """16 / (Q·d + 1) and the scales, at 1024 × 4096; dense matrices have no mask and no overhead at all."""
    format = parse_weight(name)
    weight = torch.randn(256, 4096).masked_fill_(torch.rand(256, 4096) >= density, 0.0).repeat(4, 1)
    packed = tiles.pack(weight, format, sparse=density < 1)
    stated = packed.density if density < 1 else None
    formula = format.bits_per_weight(stated) * 1024 * 4096 / 8
    assert formula <= packed.nbytes <= formula * (1.01 if density < 1 else 1.0)
    assert packed.compression_factor == pytest.approx(
        format.compression_factor(packed.density if density < 1 else None), rel=0.01
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_unpacking_to_another_type_rounds_once(dtype):
    packed = tiles.pack(matrix(16, 64) / 256, "int4:g32")
    assert torch.equal(tiles.unpack(packed, dtype), tiles.unpack(packed).to(dtype))


def test_transposed_and_gradient_carrying_weights_are_packed_as_they_read():
    weight = torch.nn.Parameter(matrix(70, 20)).T
    assert_same_bytes(tiles.pack(weight, "int4:g32"), tiles.pack(weight.detach().clone(), "int4:g32"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tiles.pack(torch.zeros(4), "bf16"), ValueError, r"\[neurons, inputs\], not \[4\]"),
        (lambda: tiles.pack(torch.zeros(0, 4), "bf16"), ValueError, "empty matrix"),
        (lambda: tiles.pack(torch.zeros(4, 4).int(), "bf16"), TypeError, "float32, bfloat16 or float16"),
        (lambda: tiles.pack(torch.full((4, 4), torch.nan), "int4:g32"), ValueError, "finite: 16 are not"),
        (lambda: tiles.pack(torch.tensor([[1.0, torch.inf]]), "bf16", sparse=True), ValueError, "finite: 1 are not"),
        (lambda: tiles.pack(torch.zeros(4, 4), "int5"), ValueError, "int5 needs a scale"),
        (lambda: tiles.pack(torch.zeros(4, 4), "bfp:g32:m8"), ValueError, "a format of activations"),
        (lambda: tiles.pack(torch.zeros(4, 4), "bf16", mask=torch.ones(4, 5)), ValueError, r"mask is \[4, 5\]"),
        (lambda: tiles.pack(torch.zeros(4, 4), "bf16", threads=0), ValueError, "one thread is needed, not 0"),
        (lambda: tiles.pack(torch.zeros(4, 4), "bf16", operand_bits=8), ValueError, "needs a 16-bit operand"),
        (lambda: tiles.pack(torch.zeros(4, 4), "bf16", scales=torch.ones(4, 1)), ValueError, "bf16 has no scales"),
        (
            lambda: tiles.pack(torch.zeros(4, 4), "int4:g32", scales=torch.ones(4, 1)),
            ValueError,
            r"scales must be torch.bfloat16 \[4, 1\], not torch.float32",
        ),
        (
            lambda: tiles.pack(torch.zeros(4, 4), "int4:g32", scales=torch.zeros(4, 1).bfloat16()),
            ValueError,
            "scales to divide by must be finite and not zero",
        ),
        (
            lambda: tiles.pack(torch.zeros(4, 4), "mxfp4", scales=torch.full((4, 1), 255).byte()),
            ValueError,
            "scales to divide by must be finite and not zero",
        ),
        (
            lambda: tiles.pack(torch.zeros(4, 4), "uint4:g32", scales=torch.ones(4, 1).half()),
            ValueError,
            "needs zero points beside its scales",
        ),
        (
            lambda: tiles.pack(
                torch.ones(4, 4),
                "uint4:g32",
                sparse=True,
                scales=torch.ones(4, 1).half(),
                zeros=torch.tensor([[0], [16], [8], [240]]).byte(),
            ),
            ValueError,
            "zero points of a sparse uint4:g32 matrix must be whole, multiples of 16 as stored",
        ),
        (lambda: tiles.pack_codes(Quantized(torch.full((4, 4), 16).byte()), "e2m1"), ValueError, "0 to 15, not 16"),
        (lambda: tiles.pack_codes(Quantized(torch.zeros(4, 4)), "e2m1"), ValueError, "codes of e2m1 are torch.uint8"),
        (
            lambda: tiles.pack_codes(Quantized(torch.zeros(4, 4, dtype=torch.uint8)), "int4:g32"),
            ValueError,
            "int4:g32 needs scales beside its codes",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_tables_with_whole_row_scales():
    format = table_format(3, group=None)
    weight = matrix(18, 40)
    assert torch.equal(tiles.unpack(tiles.pack(weight, format)), expected(weight, format, None))
