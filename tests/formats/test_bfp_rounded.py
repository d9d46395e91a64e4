"""Block floating point by rounding alone, as emulation does: equal to encoding and decoding."""

import math

import pytest
import torch
from hypothesis import given, settings

from tests.formats.bfp_cases import finite_halves, formats, on_groups, on_mantissas, same_bits, tensors, varied
from tests.formats.devices import on_devices
from tilepress.formats.bfp import BFP, decode, encode, rounded


@on_devices
@on_groups
@on_mantissas
def test_rounding_all_halves_is_encoding_and_decoding(mantissa, group, device):
    x = finite_halves()[torch.randperm(63488, generator=torch.Generator().manual_seed(mantissa))]
    x = torch.cat([x, finite_halves()[:70]]).to(device)  # in any company, and in that of like ones; a ragged group
    format = BFP(group, mantissa)
    assert same_bits(rounded(x, format), decode(encode(x, format), torch.float16))


@settings(max_examples=200)
@given(x=tensors(), format=formats)
def test_rounding_is_encoding_and_decoding(x, format):
    assert same_bits(rounded(x, format), decode(encode(x, format), x.dtype))


def test_rounding_leaves_its_input_alone_and_refuses_other_types():
    x = varied(64).float()
    before = x.clone()
    rounded(x, BFP(64, 3))
    assert same_bits(x, before)
    with pytest.raises(TypeError, match="dtype must be float16, bfloat16 or float32"):
        rounded(x.double(), BFP(64, 3))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_group_with_something_not_finite_is_not_a_number(bad):
    x = torch.ones(3, 32)
    x[1, 5] = bad
    values = rounded(x, BFP(16, 8))
    assert values[1, :16].isnan().all() and int(values.isnan().sum()) == 16
