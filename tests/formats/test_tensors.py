"""Whole tensors: bit-equal to the scalar reference, and to rules written down another way."""

import math
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilepress.formats import (
    BF8,
    BF16,
    FLOATS,
    FP16,
    NF4,
    SCALE_TYPES,
    SIGNED,
    UNSIGNED,
    Scaling,
    Table,
    WeightFormat,
    decode,
    dequantize,
    encode,
    parse_weight,
    quantize,
    reference,
    weight_names,
)
from tilepress.formats.nearest import float32_thresholds
from tilepress.formats.tensors import Quantized, scale_values, scales_of, sqnr

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
GROUPS = [16, 32, 48, None]
WIDE = tuple(np.random.default_rng(0).normal(size=256).astype(np.float32).tolist())
TABLES = (
    NF4,
    Table("lut1:one value", 1, (0.5,)),
    Table("lut1:zeros", 1, (0.0, -0.0)),
    Table("lut2:positive", 2, (1.0, 2.0, 4.0)),
    Table("lut2:small", 2, (-0.25, 0.0, 0.1875)),
    Table("lut3:unsorted", 3, (0.75, -2.0, 0.0, 0.75, -0.125)),
    Table("lut8:wide", 8, WIDE),
)
ELEMENTS = (*FLOATS, *SIGNED, *UNSIGNED, *TABLES)
BYTES = [element for element in ELEMENTS if element.bits <= 8]
HALVES = (BF16, FP16)
WITH_NAN = [element for element in FLOATS if element.specials != "none"]
FORMATS = [
    *(WeightFormat(element) for element in (*FLOATS, *TABLES)),
    *(WeightFormat(e, Scaling(group, type)) for e in ELEMENTS for group in GROUPS for type in SCALE_TYPES),
]
SCALE_DTYPES = {"e8m0": torch.uint8, "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

# Where the rules change: signed zeros, ties, subnormals and least normals of each width, the ends of float32.
FLOAT32_MAX = torch.finfo(torch.float32).max
EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.5, 2.5, -3.5, 5.0, 6.0, 7.0, -8.0, 127.5, 448.0, 464.0, -57344.0, 65520.0]
EDGES += [1e-30, -1e-30, 1e30, -1e30, 2.0**-149, -(2.0**-149), 1e-40, 2.0**-126, 2.0**-127, 2.0**-133, 2.0**-24]
EDGES += [FLOAT32_MAX, -FLOAT32_MAX, FLOAT32_MAX / 2, 2.0**127]

on_devices = pytest.mark.parametrize("device", DEVICES)
on_elements = pytest.mark.parametrize("element", ELEMENTS, ids=str)
on_scale_types = pytest.mark.parametrize("type", SCALE_TYPES)
on_groups = pytest.mark.parametrize("group", GROUPS, ids=lambda group: f"g{group}" if group else "row")

float32s = st.one_of(
    st.sampled_from(EDGES),
    st.floats(-8.0, 8.0, width=32),
    st.integers(-300, 300).map(lambda n: n / 2),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)
formats = st.sampled_from(FORMATS)


def filled(palette: list[float], shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A float32 tensor filled at random from `palette`."""
    choice = torch.Generator().manual_seed(seed)
    return torch.tensor(palette)[torch.randint(len(palette), shape, generator=choice)]


def as_weights(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` in `dtype`, brought into its range so that it stays finite."""
    limit = torch.finfo(dtype).max
    return x.clamp(-limit, limit).to(dtype)


@st.composite
def matrices(draw):
    """Weights of 1 to 3 neurons, whole groups and ragged ones, some of them all zeros, in any dtype."""
    shape = draw(st.integers(1, 3)), draw(st.sampled_from([1, 15, 16, 17, 32, 47, 50, 64, 97]))
    x = filled(draw(st.lists(float32s, min_size=1, max_size=12)), shape, draw(st.integers(0, 2**16)))
    start = draw(st.integers(0, shape[1]))
    x[0, start : start + 48] = 0
    return as_weights(x, draw(st.sampled_from(DTYPES)))


def edge_matrix(inputs: int = 50) -> torch.Tensor:
    """Float32 rows, each a regime of its own: ordinary, tiny, huge, subnormal, zero, one sign, and all mixed."""
    x = torch.randn(9, inputs, generator=torch.Generator().manual_seed(0))
    x[1] *= 1e-30
    x[2] *= 1e30
    x[3] *= 1e-42
    x[4] = torch.tensor([0.0, -0.0])[torch.arange(inputs) % 2]
    x[5] = x[5].abs()
    x[6] = -x[6].abs()
    x[7] = filled(EDGES, (inputs,), seed=1)
    x[8] = filled([FLOAT32_MAX, -FLOAT32_MAX, 0.0, 1.0], (inputs,), seed=2)
    x[0, :16], x[5, 16:32] = 0, 0
    return x


def bits_of(x: torch.Tensor) -> list:
    """Float32 bit patterns, which tell -0.0 from 0.0."""
    assert x.dtype == torch.float32
    return x.cpu().contiguous().view(torch.int32).tolist()


def float32_bits(values) -> list:
    return np.array(values, np.float32).view(np.int32).tolist()


def unsigned(codes: torch.Tensor, element) -> list:
    """Codes as non-negative integers: int16 patterns and bytes alike."""
    assert codes.dtype == (torch.int16 if element in HALVES else torch.uint8)
    return (codes.cpu().to(torch.int32) & 0xFFFF).tolist()


def reference_weights(row: reference.Row, format: WeightFormat) -> list[float]:
    """(decode(code) - zero) * scale, every operation rounded to float32."""
    size = format.scaling.group_inputs(len(row.codes)) if format.scaling else len(row.codes)
    weights = []
    with np.errstate(over="ignore", under="ignore"):
        for i, code in enumerate(row.codes):
            value = np.float32(format.element.decode(code))
            value = value - np.float32(row.zeros[i // size] * 2.0 ** (format.element.bits - 8)) if row.zeros else value
            weights.append(value * np.float32(row.scales[i // size]) if row.scales else value)
    return weights


def assert_follows_reference(weight: torch.Tensor, format: WeightFormat, device: str, sparse: bool = False) -> None:
    rows = [reference.quantize_row(row, format, sparse=sparse) for row in weight.tolist()]
    got = quantize(weight.to(device), format, sparse=sparse)
    assert unsigned(got.codes, format.element) == [row.codes for row in rows]
    if format.scaling is None:
        assert got.scales is None
    else:
        assert got.scales.dtype == SCALE_DTYPES[format.scaling.type]
        assert bits_of(scale_values(got.scales)) == float32_bits([row.scales for row in rows])
    assert (got.zeros is not None) == format.has_zero_point
    if got.zeros is not None:
        assert got.zeros.dtype == torch.uint8
        assert got.zeros.tolist() == [row.zeros for row in rows]
    assert bits_of(dequantize(got, format)) == float32_bits([reference_weights(row, format) for row in rows])


# Quantising, against the reference


@on_devices
@on_groups
@on_scale_types
@on_elements
def test_every_scaled_format_follows_the_reference(element, type, group, device):
    assert_follows_reference(edge_matrix(), WeightFormat(element, Scaling(group, type)), device)


@on_devices
@pytest.mark.parametrize("element", [*FLOATS, *TABLES], ids=str)
def test_every_unscaled_format_follows_the_reference(element, device):
    assert_follows_reference(edge_matrix(), WeightFormat(element), device)


@on_devices
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", weight_names())
def test_every_dtype_follows_the_reference(name, dtype, device):
    assert_follows_reference(as_weights(edge_matrix(37), dtype), parse_weight(name), device)


@on_devices
@settings(deadline=None, max_examples=300)
@given(weight=matrices(), format=formats, sparse=st.booleans())
def test_any_matrix_follows_the_reference(device, weight, format, sparse):
    assert_follows_reference(weight, format, device, sparse)


@on_devices
@pytest.mark.parametrize("name", ["int4:g16", "uint4:g16", "mxfp4", "nf4:row", "bf16"])
@pytest.mark.parametrize("inputs", [32, 40])
def test_strided_matrices_follow_the_reference(name, inputs, device):
    x = torch.randn(inputs, 6, generator=torch.Generator().manual_seed(0))
    assert_follows_reference(x.to(device).t(), parse_weight(name), device)
    assert_follows_reference(x.to(device).t()[::2], parse_weight(name), device)


@on_devices
@on_scale_types
@settings(deadline=None, max_examples=20)
@given(extents=st.lists(float32s.map(abs), min_size=1, max_size=8))
def test_any_extent_has_the_scale_of_the_reference(device, type, extents):
    extents = [*extents, 0.0, math.inf]
    for format in (WeightFormat(element, Scaling(16, type)) for element in ELEMENTS):
        with np.errstate(over="ignore", under="ignore"):
            expected = [float(reference.scale_of(np.float32(extent), format)) for extent in extents]
        got = scales_of(torch.tensor(extents, device=device), format)
        assert bits_of(scale_values(got)) == float32_bits(expected), format


# Encoding and decoding, against the scalar code


@on_devices
@on_elements
@settings(deadline=None, max_examples=10)
@given(palette=st.lists(st.one_of(float32s, st.sampled_from([math.inf, -math.inf])), min_size=1, max_size=40))
def test_any_value_encodes_as_the_scalar_code(device, element, palette):
    x = torch.tensor([*palette, *EDGES], device=device)
    assert unsigned(encode(x, element), element) == [element.encode(value) for value in x.tolist()]


def threshold_cases(element) -> torch.Tensor:
    """The float32 at which each rank begins, and the one below it; of a float with both signs."""
    if element in (*SIGNED, *UNSIGNED):
        x = torch.arange(element.low - 1, element.high + 2, 0.5)
    else:
        values = element.magnitudes if element in FLOATS else [value for value, _ in element.ranked]
        x = torch.tensor(float32_thresholds(values))
    return torch.cat([x, x.nextafter(torch.tensor(-math.inf)), -x])


@on_devices
@pytest.mark.parametrize("element", BYTES, ids=str)
def test_both_sides_of_every_threshold_encode_as_the_scalar_code(element, device):
    x = threshold_cases(element).to(device)
    assert unsigned(encode(x, element), element) == [element.encode(value) for value in x.tolist()]


@on_devices
@pytest.mark.parametrize("element", BYTES, ids=str)
def test_every_code_decodes_as_the_scalar_code(element, device):
    codes = torch.arange(element.codes, dtype=torch.uint8, device=device)
    got = decode(codes, element).cpu()
    expected = torch.tensor([element.decode(code) for code in range(element.codes)])
    assert torch.equal(got.isnan(), expected.isnan())
    assert bits_of(got.nan_to_num(9.0)) == bits_of(expected.nan_to_num(9.0))


@on_devices
@pytest.mark.parametrize("element", HALVES, ids=str)
def test_every_half_code_decodes_and_encodes_as_the_scalar_code(element, device):
    codes = torch.arange(-(2**15), 2**15).to(torch.int16)
    expected = torch.tensor([element.decode(code & 0xFFFF) for code in codes.tolist()])
    got = decode(codes.to(device), element).cpu()
    assert torch.equal(got.isnan(), expected.isnan())
    finite = expected.isfinite()
    assert bits_of(got[finite]) == bits_of(expected[finite])
    assert torch.equal(encode(expected[finite].to(device), element).cpu(), codes[finite])


@on_devices
@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("bf16", "bfloat16"),
        ("bf8", "float8_e5m2"),
        ("e4m3", "float8_e4m3fn"),
        ("e3m2", "float6_e3m2fn"),
        ("e2m3", "float6_e2m3fn"),
        ("e2m1", "float4_e2m1fn"),
    ],
)
def test_floats_encode_as_the_ml_dtypes_cast(element, dtype, device):
    """All values, all midpoints of neighbours, and the float32s beside those."""
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), dtype))
    element = parse_weight(element).element
    values = np.array(element.magnitudes, np.float32)
    middles = values[:-1] + np.diff(values) / 2
    x = np.concatenate([values, middles, np.nextafter(middles, 0), np.nextafter(middles, np.float32(np.inf))])
    x = np.concatenate([x, -x]).astype(np.float32)
    expected = x.astype(dtype).view(np.uint16 if element.bits == 16 else np.uint8)
    assert unsigned(encode(torch.from_numpy(x).to(device), element), element) == expected.tolist()


@on_devices
@pytest.mark.parametrize("element", WITH_NAN, ids=str)
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0x7FFFFFFF], ids=hex)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_encodes_as_the_scalar_code(element, bits, sign, device):
    """A scalar NaN has a sign and nothing else, so every payload has the code of the quiet NaN."""
    nan = torch.tensor([bits], dtype=torch.int32).view(torch.float32).to(device)
    nan = nan.copysign(torch.tensor(sign, device=device))
    assert unsigned(encode(nan, element), element) == [element.encode(math.copysign(math.nan, sign))]


@on_devices
@pytest.mark.parametrize("element", [e for e in ELEMENTS if e not in WITH_NAN], ids=str)
def test_nan_is_refused_where_there_is_none(element, device):
    with pytest.raises(ValueError, match=f"^{element.name} has no NaN to encode$"):
        encode(torch.tensor([0.0, math.nan], device=device), element)


@on_devices
@pytest.mark.parametrize("element", [BF16, BF8, SIGNED[2], UNSIGNED[2], NF4, TABLES[1]], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (7,), (2, 3, 5)], ids=str)
def test_shapes_are_kept(element, shape, device):
    codes = encode(torch.ones(shape, device=device), element)
    assert codes.shape == decode(codes, element).shape == shape
    assert codes.device.type == device


@pytest.mark.parametrize("element", [BF16, BF8, SIGNED[2], NF4], ids=str)
def test_strided_values_encode_in_their_order(element):
    x = torch.linspace(-2, 2, 60).reshape(6, 10)
    assert torch.equal(encode(x.t()[::2], element), encode(x, element).t()[::2])


@on_devices
@pytest.mark.parametrize("element", [e for e in BYTES if e.bits < 8], ids=str)
def test_codes_beyond_the_last_are_refused(element, device):
    codes = torch.tensor([[0, element.codes]], dtype=torch.uint8, device=device)
    with pytest.raises(ValueError, match=f"^{element.name} has codes 0 to {element.codes - 1}, not {element.codes}$"):
        decode(codes, element)


@on_devices
@pytest.mark.parametrize("element", [BF8, SIGNED[2], UNSIGNED[6], NF4], ids=str)
def test_negative_codes_are_refused(element, device):
    with pytest.raises(ValueError, match=f"^{element.name} has codes 0 to {element.codes - 1}, not -1$"):
        decode(torch.tensor([0, -1], dtype=torch.int16, device=device), element)


def test_changing_decoded_values_changes_no_later_decoding():
    codes = torch.arange(16, dtype=torch.uint8)
    decode(codes, NF4).zero_()
    assert decode(codes, NF4).tolist() == list(NF4.values)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_table_has_one_zero(zero):
    for value in (zero, -zero):
        table = Table("lut1:signed zero", 1, (value, 1.0))
        assert math.copysign(1.0, table.decode(0)) == 1.0
        assert bits_of(decode(torch.tensor([0], dtype=torch.uint8), table)) == float32_bits([table.decode(0)])


# Scales


@on_devices
def test_e8m0_codes_are_powers_of_two_and_the_last_is_nan(device):
    values = scale_values(torch.arange(256, dtype=torch.uint8, device=device)).cpu()
    assert values.dtype == torch.float32
    assert values[:255].tolist() == [math.ldexp(1.0, code - 127) for code in range(255)]
    assert values[255].isnan()


@on_devices
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_float_scales_are_their_own_values(dtype, device):
    scales = as_weights(torch.tensor([[1.0, 2.0**-24, 3.140625]]), dtype)
    assert bits_of(scale_values(scales.to(device))) == bits_of(scales.float())


@on_devices
@on_scale_types
@on_elements
def test_group_of_zeros_has_scale_one(element, type, device):
    zeros = torch.tensor([0.0, -0.0, 0.0, 0.0], device=device).repeat(2, 16)
    for format in (WeightFormat(element, Scaling(group, type)) for group in GROUPS):
        got = quantize(zeros, format)
        assert scale_values(got.scales).tolist() == [[1.0] * format.scaling.groups(64)] * 2
        assert (dequantize(got, format) == element.decode(element.encode(0.0))).all()


@on_devices
@on_scale_types
@on_elements
def test_scales_are_positive_and_finite(element, type, device):
    got = quantize(edge_matrix().to(device), WeightFormat(element, Scaling(16, type)))
    scales = scale_values(got.scales)
    assert scales.isfinite().all() and (scales > 0).all()


@on_scale_types
@on_elements
def test_scales_of_the_reference_are_positive_and_finite(element, type):
    format = WeightFormat(element, Scaling(16, type))
    for row in edge_matrix().tolist():
        assert all(0 < scale < math.inf for scale in reference.quantize_row(row, format).scales)


@pytest.mark.parametrize(
    ("name", "largest", "scale"),
    [
        ("int4:g16:fp32", 3.5, 0.5),
        ("int8:g16:fp32", -127.0, 1.0),
        ("e4m3:g16:fp32", 224.0, 0.5),
        ("nf4:g16", -0.25, 0.25),
        ("int4:g16", 7 * (1 + 2**-8), 1.0),  # a tie in bf16: to even
        ("int4:g16:fp16", 7 * (1 + 2**-8), 1 + 2**-8),
        ("int4:g16:fp16", 1e30, 65504.0),
        ("int4:g16:fp16", 1e-30, 2.0**-24),
        ("int8:g16:bf16", 1e-40, 2.0**-133),
        ("int8:g16:fp32", 1e-44, 2.0**-149),
        ("mxfp4", 6.0, 1.0),  # 2^(floor(log2 6) - 2)
        ("mxfp4", 8.0, 2.0),
        ("mxfp4", -7.999, 1.0),
        ("mxfp8", 448.0, 1.0),  # 2^(8 - 8)
        ("mxfp8-e5m2", 1.0, 2.0**-15),
        ("mxfp4", 1e-40, 2.0**-127),
        ("int8:g32:e8m0", 127.0, 1.0),  # 2^(6 - 6)
    ],
)
def test_scale_by_hand(name, largest, scale):
    weight = torch.zeros(1, 16)
    weight[0, 3] = largest
    assert scale_values(quantize(weight, parse_weight(name)).scales).item() == scale


# How far a weight is moved

# The half step of rounding, and what a scale rounded to its type moves the largest code by.
ROUNDOFF = {"bf16": 2.0**-9, "fp16": 2.0**-12, "fp32": 2.0**-25}


@on_devices
@pytest.mark.parametrize("type", ROUNDOFF)
@pytest.mark.parametrize("element", [*SIGNED, *UNSIGNED], ids=str)
def test_integers_move_a_weight_by_half_a_scale_at_most(element, type, device):
    weight = torch.randn(4, 200, generator=torch.Generator().manual_seed(element.bits)).to(device)
    slack = element.max * 2 * ROUNDOFF[type] if element in UNSIGNED else 0.0
    for format in (WeightFormat(element, Scaling(group, type)) for group in GROUPS):
        got = quantize(weight, format)
        size = format.scaling.group_inputs(200)
        scales = scale_values(got.scales).double().repeat_interleave(size, dim=1)[:, :200]
        error = (weight.double() - dequantize(got, format).double()).abs() / scales
        assert error.max() <= 0.5 + slack + 1e-4


@on_devices
@pytest.mark.parametrize("name", ["int4:g32", "uint4:g128", "nf4:g64", "mxfp4", "mxfp8", "bf8", "bf16"])
def test_quantising_a_dequantised_matrix_keeps_it(name, device):
    format = parse_weight(name)
    weight = torch.randn(4, 160, generator=torch.Generator().manual_seed(0)).to(device)
    once = dequantize(quantize(weight, format), format)
    again = dequantize(quantize(once, format), format)
    assert torch.allclose(again, once, rtol=2**-7, atol=0)


def test_more_bits_move_weights_less():
    weight = torch.randn(8, 256, generator=torch.Generator().manual_seed(0))
    for names in [[f"int{bits}:g32" for bits in range(2, 9)], [f"uint{bits}:g32" for bits in range(2, 9)]]:
        ratios = [sqnr(weight, dequantize(quantize(weight, f), f)) for f in map(parse_weight, names)]
        assert all(more > less + 4 for less, more in pairwise(ratios))


@pytest.mark.parametrize(
    ("approximation", "decibels"), [([3.0, 4.0], math.inf), ([3.0, 3.5], 20.0), ([0.0, 0.0], 0.0), ([8.0, 4.0], 0.0)]
)
def test_signal_to_noise_ratio(approximation, decibels):
    assert sqnr(torch.tensor([3.0, 4.0]), torch.tensor(approximation)) == pytest.approx(decibels)


# Refusals


@pytest.mark.parametrize("shape", [(), (8,), (2, 3, 4)], ids=str)
def test_other_than_a_matrix_is_refused(shape):
    with pytest.raises(ValueError, match=r"^a weight matrix is \[neurons, inputs\], not \["):
        quantize(torch.ones(shape), parse_weight("int4:g32"))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("name", ["bf16", "int4:g32", "int8:row"])
def test_empty_matrix_is_refused(name, shape):
    message = rf"^an empty matrix has no format: \[{shape[0]}, {shape[1]}\]$"
    with pytest.raises(ValueError, match=message):
        quantize(torch.ones(shape), parse_weight(name))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.bool, torch.float64, torch.float8_e5m2])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match=f"^weights are float32, bfloat16 or float16, not {dtype}$"):
        quantize(torch.zeros(2, 16).to(dtype), parse_weight("int4:g32"))


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match=r"^weights are a torch tensor, not ndarray$"):
        quantize(np.zeros((2, 32), np.float32), parse_weight("int4:g32"))


@on_devices
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["bf16", "int4:g32", "uint4:g32", "mxfp4", "nf4:row"])
@pytest.mark.parametrize("bad", [[math.nan], [math.inf, -math.inf], [math.nan, math.inf, -math.inf]], ids=str)
def test_nonfinite_weights_are_refused_and_counted(name, bad, dtype, device):
    weight = torch.ones(2, 40, dtype=dtype)
    weight[1, 30 : 30 + len(bad)] = torch.tensor(bad, dtype=dtype)
    with pytest.raises(ValueError, match=f"^weights must be finite: {len(bad)} are not$"):
        quantize(weight.to(device), parse_weight(name))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["bf16", "int4:g32"])
def test_reference_refuses_nonfinite_weights(name, bad):
    with pytest.raises(ValueError, match=r"^weights must be finite$"):
        reference.quantize_row([0.0, bad], parse_weight(name))


# What comes back


@on_devices
@pytest.mark.parametrize("name", weight_names())
def test_parts_of_a_quantised_matrix(name, device):
    format = parse_weight(name)
    weight = torch.randn(3, 100, generator=torch.Generator().manual_seed(0)).to(device)
    got = quantize(weight, format)
    parts = [part for part in (got.codes, got.scales, got.zeros) if part is not None]
    assert len(parts) == 1 + (format.scaling is not None) + format.has_zero_point
    assert got.codes.shape == weight.shape
    assert all(part.shape == (3, format.scaling.groups(100)) for part in parts[1:])
    assert all(part.device.type == device and part.is_contiguous() for part in parts)
    assert dequantize(got, format).shape == weight.shape


def test_the_weight_is_left_as_it_was():
    weight = edge_matrix()
    for format in FORMATS[::17]:
        quantize(weight, format)
    assert bits_of(weight) == bits_of(edge_matrix())


@pytest.mark.parametrize("name", ["bf16", "int4:g32", "uint4:g32", "mxfp4", "nf4:g64"])
def test_gradients_are_not_recorded(name):
    got = quantize(torch.ones(2, 64, requires_grad=True), parse_weight(name))
    assert not any(part.requires_grad for part in (got.codes, got.scales, got.zeros) if part is not None)


def test_quantised_matrix_is_frozen():
    got = Quantized(torch.zeros(1, 1, dtype=torch.uint8))
    assert got.scales is None and got.zeros is None
    with pytest.raises(FrozenInstanceError):
        got.codes = got.codes
