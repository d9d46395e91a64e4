"""Harmonia's converter, both ways, against `formats.bfp`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.bfp_cases import finite_halves, same
from tests.simulate.units.data import halves, spread
from tilepress.formats.bfp import BFP, encode
from tilepress.simulate.units import harmonia_converter
from tilepress.simulate.units.harmonia_converter import Converter, Path

AXES = {Path.channels: 1, Path.tokens: 0}


@pytest.mark.parametrize("path", Path)
@pytest.mark.parametrize("mantissa", range(1, 9))
def test_every_half(mantissa, path):
    x = finite_halves()[:: 1 if mantissa in (4, 8) else 7]
    x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(mantissa))]
    x = x[: len(x) // 64 * 64].reshape(-1, 64)
    assert same(Converter(mantissa).convert(x, path).values, encode(x, BFP(32, mantissa), AXES[path]))


@settings(max_examples=50)
@given(x=halves(st.integers(1, 70), st.integers(1, 70)), mantissa=st.integers(1, 8), path=st.sampled_from(list(Path)))
def test_any_values(x, mantissa, path):
    result = Converter(mantissa).convert(x, path)
    assert same(result.values, encode(x, BFP(32, mantissa), AXES[path]))
    assert result.cycles == harmonia_converter.cycles(*x.shape, path)
    assert result.events == harmonia_converter.events(*x.shape, path)


@pytest.mark.parametrize(
    "tokens, channels, path, expected",
    [
        (8, 32, Path.channels, 32 + 32),  # found, then aligned
        (8, 64, Path.channels, 32 + 32 + 32),  # the second group is found while the first is aligned
        (32, 16, Path.tokens, 64 + 64),  # four passes over 16 columns
        (5, 16, Path.tokens, 16 + 16),
        (40, 16, Path.tokens, 64 + 64 + 16),
    ],
)
def test_eight_values_a_cycle(tokens, channels, path, expected):
    assert harmonia_converter.cycles(tokens, channels, path) == expected
    assert Converter(4).convert(spread(tokens, channels), path).cycles == expected


def test_bad_input():
    with pytest.raises(ValueError, match="magnitudes of 1 to 8 bits, not 9"):
        Converter(9)
    with pytest.raises(ValueError, match=r"FP16 values \[tokens, channels\], not \[3\]"):
        Converter(8).convert(torch.ones(3).half(), Path.tokens)
    with pytest.raises(TypeError, match="takes FP16 values"):
        Converter(8).convert(torch.ones(3, 3), Path.tokens)
    with pytest.raises(ValueError, match="1 of 9 values are infinite or NaN"):
        Converter(8).convert(torch.tensor([torch.nan] + [0.0] * 8).half().reshape(3, 3), Path.channels)
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        harmonia_converter.cycles(0, 4, Path.tokens)
