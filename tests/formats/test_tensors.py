"""Whole tensors encode and decode as the scalar code does."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.devices import on_devices
from tests.formats.tensor_cases import (
    BYTES,
    EDGES,
    ELEMENTS,
    HALVES,
    TABLES,
    WITH_NAN,
    bits_of,
    float32_bits,
    float32s,
    on_elements,
    unsigned,
)
from tilepress.formats import BF8, BF16, FLOATS, NF4, SIGNED, UNSIGNED, Table, decode, encode, parse_weight
from tilepress.formats.nearest import float32_thresholds


@on_devices
@on_elements
@settings(max_examples=10)
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
