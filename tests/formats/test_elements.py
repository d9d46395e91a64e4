"""What every element format refuses, and how elements compare."""

import math
from dataclasses import FrozenInstanceError

import pytest

from tilepress.formats import BF8, E4M3, FLOATS, NF4, SIGNED, UNSIGNED, Float, Integer

INTEGERS = (*SIGNED, *UNSIGNED)
WITHOUT_NAN = [*(element for element in FLOATS if element.specials == "none"), *INTEGERS, NF4]


@pytest.mark.parametrize("element", [*FLOATS, *INTEGERS, NF4], ids=str)
def test_codes_out_of_range_are_refused(element):
    for code in (-1, element.codes, element.codes + 5):
        with pytest.raises(ValueError, match=f"^{element.name} has codes 0 to {element.codes - 1}, not {code}$"):
            element.decode(code)


@pytest.mark.parametrize("element", [BF8, SIGNED[2], NF4], ids=str)
def test_elements_are_frozen_and_hashable(element):
    with pytest.raises(FrozenInstanceError):
        element.bits = 3
    assert len({element, element}) == 1 and element in {element}


def test_elements_are_equal_by_what_they_are():
    assert Integer("int4", 4, True) == SIGNED[2] and hash(Integer("int4", 4, True)) == hash(SIGNED[2])
    assert Integer("int4", 4, True) != Integer("int4", 4, False)
    assert Float("bf8", 8, 5, 2, "ieee") == BF8 != E4M3


@pytest.mark.parametrize("element", WITHOUT_NAN, ids=str)
def test_nan_is_refused_where_there_is_none(element):
    with pytest.raises(ValueError, match=f"^{element.name} has no NaN to encode$"):
        element.encode(math.nan)
