"""Float formats: every code against ml_dtypes and torch, rounding against their casts."""

import math

import numpy as np
import pytest
import torch

from tests.formats.element_cases import (
    LIMITS,
    TORCH_DTYPES,
    all_values,
    code_dtype,
    numpy_dtype,
    numpy_values,
    random_cases,
    rounding_cases,
    same_value,
)
from tilepress.formats import BF8, BF16, E2M1, E2M3, E3M2, E4M3, FLOATS, FP16

WITH_NAN = [element for element in FLOATS if element.specials != "none"]
on_floats = pytest.mark.parametrize("element", FLOATS, ids=str)


# Decoding


@on_floats
def test_every_float_code_decodes_as_numpy_does(element):
    assert all(map(same_value, all_values(element), numpy_values(element).tolist()))


@pytest.mark.parametrize("element", TORCH_DTYPES, ids=str)
def test_every_float_code_decodes_as_torch_does(element):
    codes = torch.from_numpy(np.arange(element.codes).astype(code_dtype(element)))
    expected = codes.view(TORCH_DTYPES[element]).to(torch.float64)
    assert all(map(same_value, all_values(element), expected.tolist()))


@on_floats
def test_float_limits(element):
    largest, least_normal, least = LIMITS[element]
    assert element.max == largest
    assert element.emax == math.floor(math.log2(largest))
    assert element.magnitudes[:2] == (0.0, least)
    assert element.magnitudes[1 << element.mantissa_bits] == least_normal


@pytest.mark.parametrize(
    ("element", "bits"),
    [(BF16, 16), (FP16, 16), (BF8, 8), (E4M3, 8), (E3M2, 6), (E2M3, 6), (E2M1, 4)],
    ids=str,
)
def test_float_widths(element, bits):
    assert element.bits == bits and element.codes == 2**bits and element.operand_bits == 16
    assert element.bits == 1 + element.exponent_bits + element.mantissa_bits


# Encoding


@on_floats
@pytest.mark.parametrize("cases", [rounding_cases, random_cases], ids=["values and ties", "random"])
def test_float_encodes_as_the_numpy_cast(element, cases):
    x = cases(element)
    expected = x.astype(numpy_dtype(element)).view(code_dtype(element)).tolist()
    got = [element.encode(value) for value in x.tolist()]
    assert got == expected


@pytest.mark.parametrize("element", TORCH_DTYPES, ids=str)
def test_float_encodes_as_the_torch_cast(element):
    x = torch.from_numpy(random_cases(element))
    expected = x.to(TORCH_DTYPES[element]).view(torch.int16 if element.bits == 16 else torch.uint8)
    assert [element.encode(value) for value in x.tolist()] == [c % element.codes for c in expected.tolist()]


@on_floats
def test_float_codes_survive_a_round_trip(element):
    codes = range(0, element.codes, 1 if element.bits < 16 else 11)
    finite = [code for code in codes if math.isfinite(element.decode(code))]
    assert [element.encode(element.decode(code)) for code in finite] == finite


@pytest.mark.parametrize(
    ("x", "code"),
    [
        (0.25, 0b0000),  # half of 0 and 0.5: to the even code
        (0.75, 0b0010),  # half of 0.5 and 1
        (1.25, 0b0010),  # half of 1 and 1.5
        (2.5, 0b0100),  # half of 2 and 3
        (5.0, 0b0110),  # half of 4 and 6
        (5.000001, 0b0111),
        (-0.2, 0b1000),
        (-5.5, 0b1111),
    ],
)
def test_e2m1_by_hand(x, code):
    assert E2M1.encode(x) == code


@on_floats
@pytest.mark.parametrize("beyond", [1.0001, 1.5, 2.0, math.inf])
def test_float_saturates_beyond_its_range(element, beyond):
    assert element.decode(element.encode(element.max * beyond)) == element.max
    assert element.decode(element.encode(-element.max * beyond)) == -element.max


@on_floats
def test_float_keeps_the_sign_of_zero(element):
    assert element.encode(0.0) == 0
    assert element.encode(-0.0) == element.encode(-1e-300) == element.codes // 2


# NaN


@pytest.mark.parametrize(("element", "code"), [(BF16, 0x7FC0), (FP16, 0x7E00), (BF8, 0x7E), (E4M3, 0x7F)], ids=str)
def test_nan_encodes_as_the_quiet_nan_of_its_sign(element, code):
    assert element.encode(math.nan) == code
    assert element.encode(math.copysign(math.nan, -1)) == code + element.codes // 2
    assert math.isnan(element.decode(code)) and math.isnan(element.decode(code + element.codes // 2))


@pytest.mark.parametrize("element", WITH_NAN, ids=str)
def test_nan_encodes_as_the_numpy_cast(element):
    nan = np.array([math.nan], np.float32).astype(numpy_dtype(element)).view(code_dtype(element))
    assert element.encode(math.nan) % (element.codes // 2) == int(nan[0]) % (element.codes // 2)
