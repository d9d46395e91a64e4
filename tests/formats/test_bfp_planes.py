"""Block floating point with fewer bits, and as bit planes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.bfp_cases import formats, same, tensors
from tests.formats.devices import on_devices
from tilepress.formats.bfp import BFP, BitPlanes, demote, encode, pack_planes, unpack_planes


@on_devices
@settings(max_examples=100)
@given(x=tensors(), format=formats, data=st.data())
def test_demoting_is_encoding_with_fewer_bits(device, x, format, data):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    lower = data.draw(st.integers(1, format.mantissa))
    t = encode(x.to(device), format, axis)
    anew = encode(x.to(device), replace(format, mantissa=lower), axis)
    assert same(demote(t, lower), anew)


@on_devices
@settings(max_examples=100)
@given(x=tensors(), format=formats, data=st.data())
def test_planes_round_trip(device, x, format, data):
    t = encode(x.to(device), format, data.draw(st.integers(-x.ndim, x.ndim - 1)))
    p = pack_planes(t)
    assert p.planes.shape == (*t.exponent.shape, 1 + format.mantissa, format.group // 8)
    assert same(unpack_planes(p), t)


def test_raising_the_mantissa_is_refused():
    t = encode(torch.ones(16), BFP(16, 4))
    with pytest.raises(ValueError, match="cannot raise bfp:g16:m4 to mantissa 8"):
        demote(t, 8)
    with pytest.raises(ValueError, match="mantissa must be an int from 1 to 16, got 0"):
        demote(t, 0)


def damaged_planes() -> list[tuple[type[Exception], str, BitPlanes]]:
    p = pack_planes(encode(torch.ones(3, 20), BFP(16, 4)))
    padded = p.planes.clone()
    padded[1, 1, 2, 0] = 0b10000  # value 20 of a row of 20
    return [
        (TypeError, "planes must be uint8, got torch.int32", replace(p, planes=p.planes.int())),
        (TypeError, "exponent must be uint8, got torch.int64", replace(p, exponent=p.exponent.long())),
        (ValueError, r"planes must have shape \(3, 2, 5, 2\), got", replace(p, planes=p.planes[:, :, 1:])),
        (ValueError, r"planes must have shape \(3, 2, 9, 2\)", replace(p, format=BFP(16, 8))),
        (ValueError, r"exponent must have shape \(3, 2\), got", replace(p, exponent=p.exponent[:, :1])),
        (ValueError, "6 exponents lie above 30", replace(p, exponent=p.exponent + 16)),
        (ValueError, "axis must be from 0 to 1 for shape", replace(p, axis=2)),
        (ValueError, "bits are set beyond the last value", replace(p, planes=padded)),
    ]


@pytest.mark.parametrize(("error", "message", "planes"), damaged_planes())
def test_damaged_planes_are_refused(error, message, planes):
    with pytest.raises(error, match=message):
        unpack_planes(planes)
