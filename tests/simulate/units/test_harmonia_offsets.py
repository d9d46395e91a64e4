"""Offsets of keys, as attention's specification takes them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.units.data import halves, spread
from tests.simulate.units.oracle import offset_events
from tilepress.formats.bfp import BFP, encode
from tilepress.kernels import attention_reference as reference
from tilepress.simulate.units import harmonia_offsets
from tilepress.simulate.units.harmonia_offsets import OffsetGenerator, subtract


@settings(max_examples=50)
@given(keys=halves(st.integers(1, 32), st.integers(1, 40)), top=st.integers(0, 5))
def test_any_keys(keys, top):
    result = OffsetGenerator(top).generate(keys)
    assert torch.equal(result.values, reference.key_offsets(keys, top))
    assert result.cycles == harmonia_offsets.cycles(*keys.shape)
    assert result.events == offset_events(*keys.shape, top)
    smooth = reference._as_halves(keys) - reference.key_offsets(keys, top)
    ours, theirs = (encode(x, BFP(32, 8)) for x in (subtract(keys, result.values), smooth))
    assert torch.equal(ours.magnitude, theirs.magnitude) and torch.equal(ours.exponent, theirs.exponent)


def test_the_earliest_of_equals_and_the_sign():
    keys = torch.zeros(20, 5).half()
    keys[3, 1], keys[17, 1], keys[4, 4], keys[2, 0] = -7.0, 7.0, 7.0, 1.0
    assert OffsetGenerator(1).generate(keys).values.tolist() == [0, -3.5, 0, 0, 0]
    assert OffsetGenerator(2).generate(keys).values.tolist() == [0, -3.5, 0, 0, 3.5]


def test_half_of_an_odd_subnormal_loses_nothing():
    keys = torch.full((1, 1), 3 * 2.0**-24).half()
    assert OffsetGenerator(1).generate(keys).values.item() == 3 * 2.0**-25


def test_bad_input():
    with pytest.raises(ValueError, match=r"keys \[1 to 32 tokens, channels\], not \[33, 4\]"):
        OffsetGenerator(1).generate(spread(33, 4))
    with pytest.raises(ValueError, match="cannot have an offset: -1"):
        OffsetGenerator(-1)
    with pytest.raises(TypeError, match="takes FP16 values"):
        OffsetGenerator(1).generate(torch.ones(2, 2))
