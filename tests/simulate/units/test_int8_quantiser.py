"""INT8 quantisers beside numpy's float64, which holds a product of two numbers of 11 bits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.units.data import halves, spread
from tilepress.simulate.units import int8_quantiser
from tilepress.simulate.units.int8_quantiser import OfflineQuantiser, OnlineQuantiser, Scale, code_of, scale_of


def in_numpy(x, scales):
    return np.clip(np.rint(x.double().numpy() * scales.double().numpy()), -127, 127).astype(np.int64)


def tf32(value):
    """11 bits of significand, by float64: its own rounding is too fine to move a quotient of 11 bits over a tie."""
    significand, power = math.frexp(value)
    return math.ldexp(np.rint(math.ldexp(significand, 11)), power - 11)


@settings(max_examples=40)
@given(x=halves(st.integers(1, 20), st.integers(1, 40)), seed=st.integers(0, 99))
def test_offline(x, seed):
    scales = spread(x.shape[1], seed=seed).abs()
    result = OfflineQuantiser().quantise(x, scales)
    assert np.array_equal(result.codes, in_numpy(x, scales)) and result.scales is scales
    assert result.cycles == int8_quantiser.cycles(*x.shape, Scale.offline)
    assert result.events == int8_quantiser.events(*x.shape, Scale.offline)


@settings(max_examples=30)
@given(x=halves(st.integers(1, 20), st.integers(1, 100)), group=st.sampled_from([24, 64]))
def test_online(x, group):
    result = OnlineQuantiser(group).quantise(x)
    padded = torch.nn.functional.pad(x, (0, -x.shape[1] % group))
    largest = padded.reshape(len(x), -1, group).abs().amax(2)
    expected = [[tf32(127 / one) if one else 0.0 for one in row] for row in largest.tolist()]
    assert result.scales.tolist() == expected
    scales = result.scales.repeat_interleave(group, 1)[:, : x.shape[1]]
    assert np.array_equal(result.codes, in_numpy(x, scales))
    assert result.cycles == int8_quantiser.cycles(*x.shape, Scale.online, group)
    assert result.events == int8_quantiser.events(*x.shape, Scale.online, group)


def test_scales_of_every_magnitude():
    patterns = np.arange(1, 0x7C00, dtype=np.uint16)
    expected = [tf32(127 / value) for value in patterns.view(np.float16).astype(np.float64)]
    assert [scale_of(pattern) for pattern in patterns.tolist()] == expected
    assert scale_of(0) == 0 and scale_of(0x7C00) == scale_of(0x7E00) == math.inf


def test_the_largest_of_a_group_is_127():
    patterns = np.arange(1, 0x7C00, dtype=np.uint16).tolist()
    assert {code_of(pattern, scale_of(pattern)) for pattern in patterns} == {127}


@pytest.mark.parametrize(
    "value, bits", [(math.inf, 0x7C00), (-math.inf, 0xFC00), (math.nan, 0x7E00), (-math.nan, 0xFE00)]
)
def test_what_is_infinite_or_no_number_saturates(value, bits):
    expected = -127 if bits >> 15 else 127
    assert code_of(bits, 2.0**-14) == expected and code_of(bits, 0.0) == 0 and code_of(0x3C00, math.inf) == 127
    x = torch.tensor([[bits, 0, 1, 0x8001]]).to(torch.int16).view(torch.float16)
    online = OnlineQuantiser(24).quantise(x)
    assert online.codes.tolist() == [[expected, 0, 127, -127]] and online.scales.tolist() == [[math.inf]]
    scales = torch.ones(4).half()
    assert OfflineQuantiser().quantise(x, scales).codes.tolist() == [[expected, 0, 0, 0]]


def test_bad_input():
    x = torch.ones(2, 3).half()
    with pytest.raises(ValueError, match="3 channels want as many FP16 scales"):
        OfflineQuantiser().quantise(x, torch.ones(2).half())
    with pytest.raises(ValueError, match="3 channels want as many FP16 scales"):
        OfflineQuantiser().quantise(x, torch.ones(3))
    for unit in (OnlineQuantiser(), OfflineQuantiser()):
        given_scales = () if isinstance(unit, OnlineQuantiser) else (torch.ones(3).half(),)
        with pytest.raises(ValueError, match=r"takes FP16 values \[tokens, channels\], not \[3\]"):
            unit.quantise(x[0], *given_scales)
        with pytest.raises(TypeError, match="takes FP16 values"):
            unit.quantise(x.float(), *given_scales)
    with pytest.raises(ValueError, match="a group has at least 24 values, as many as a division takes cycles, not 23"):
        OnlineQuantiser(23)
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        int8_quantiser.cycles(0, 1, Scale.online)
