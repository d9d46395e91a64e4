"""Integer formats: every code against ml_dtypes and numpy, ties and ends against numpy's rounding."""

import math

import numpy as np
import pytest

from tests.formats.element_cases import all_values
from tilepress.formats import SIGNED, UNSIGNED

INTEGERS = (*SIGNED, *UNSIGNED)
on_integers = pytest.mark.parametrize("element", INTEGERS, ids=str)


@pytest.mark.parametrize("name", ["int2", "int4", "uint2", "uint4"])
def test_every_small_integer_code_decodes_as_ml_dtypes(name):
    element = next(element for element in INTEGERS if element.name == name)
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    values = np.arange(element.low, element.high + 1)
    codes = values.astype(dtype).view(np.uint8) & (element.codes - 1)
    assert [element.decode(int(code)) for code in codes] == values.tolist()
    assert [element.encode(float(value)) for value in values] == codes.tolist()


@pytest.mark.parametrize(("name", "dtype"), [("int8", np.int8), ("uint8", np.uint8)])
def test_every_byte_decodes_as_numpy_does(name, dtype):
    element = next(element for element in INTEGERS if element.name == name)
    codes = np.arange(256).astype(np.uint8)
    assert all_values(element) == codes.view(dtype).tolist()


@pytest.mark.parametrize("bits", range(2, 9))
def test_integer_ranges(bits):
    signed, unsigned = SIGNED[bits - 2], UNSIGNED[bits - 2]
    assert (str(signed), str(unsigned)) == (f"int{bits}", f"uint{bits}")
    assert (signed.low, signed.high) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert (unsigned.low, unsigned.high) == (0, 2**bits - 1)
    assert signed.max == 2 ** (bits - 1) - 1 and unsigned.max == 2**bits - 1
    assert signed.emax == bits - 2 and unsigned.emax == bits - 1
    assert signed.operand_bits == unsigned.operand_bits == 8


@on_integers
def test_integer_codes_survive_a_round_trip(element):
    assert sorted(all_values(element)) == list(range(element.low, element.high + 1))
    assert [element.encode(value) for value in all_values(element)] == list(range(element.codes))


@on_integers
def test_integer_rounds_ties_to_even(element):
    x = np.arange(element.low, element.high, 0.5)
    x = np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf), [-0.0]])
    expected = np.clip(np.rint(x), element.low, element.high)
    assert [element.decode(element.encode(float(v))) for v in x] == expected.tolist()


@on_integers
@pytest.mark.parametrize("beyond", [0.4, 0.5, 1.0, 1e9, math.inf])
def test_integer_saturates_beyond_its_range(element, beyond):
    assert element.decode(element.encode(element.high + beyond)) == element.high
    assert element.decode(element.encode(element.low - beyond)) == element.low
