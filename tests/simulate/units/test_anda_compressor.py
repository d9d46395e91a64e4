"""Anda's compressor: the planes of `formats.bfp` and of `kernels.pack_planes`, from one-place shifts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.bfp_cases import finite_halves
from tests.simulate.units.data import EDGES, halves
from tilepress import kernels
from tilepress.formats import bfp_reference as reference
from tilepress.formats.bfp import BFP, encode, pack_planes
from tilepress.simulate.units import anda_compressor
from tilepress.simulate.units.anda_compressor import Compressor

MANTISSAS = range(1, 17)


def check(x, mantissa, lanes=16):
    """Planes, exponents, cycles and events of one tensor."""
    result, format = Compressor(mantissa, lanes).compress(x), BFP(64, mantissa)
    expected = pack_planes(encode(x, format))
    assert torch.equal(result.planes.planes, expected.planes)
    assert torch.equal(result.planes.exponent, expected.exponent)
    native = kernels.pack_planes(x, format)
    assert torch.equal(native.planes, result.planes.planes.reshape(native.planes.shape))
    groups = expected.exponent.numel()
    if groups:
        assert result.cycles == anda_compressor.cycles(groups, mantissa, lanes)
        assert result.events == anda_compressor.events(groups, mantissa)


@pytest.mark.parametrize("mantissa", MANTISSAS)
def test_every_half(mantissa):
    shuffled = finite_halves()[torch.randperm(63488, generator=torch.Generator().manual_seed(mantissa))]
    check(torch.cat([finite_halves(), shuffled]), mantissa)


@settings(max_examples=60)
@given(
    x=halves(st.integers(0, 3), st.integers(0, 150)),
    mantissa=st.sampled_from(MANTISSAS),
    lanes=st.sampled_from([1, 3, 16]),
)
def test_any_values(x, mantissa, lanes):
    check(x, mantissa, lanes)


@pytest.mark.parametrize("mantissa", [1, 4, 11, 16])
def test_the_specifications_words(mantissa):
    group = (EDGES * 7)[:64]
    planes = Compressor(mantissa).compress(torch.tensor(group, dtype=torch.float16)).planes.planes
    words = reference.pack_group(reference.encode_group(group, BFP(64, mantissa)), BFP(64, mantissa))
    assert [bytes(word.tolist()) for word in planes[0]] == words


def test_lanes_work_at_once():
    assert anda_compressor.cycles(16, 7) == anda_compressor.cycles(1, 7) == 8
    assert anda_compressor.cycles(17, 7) == 16


@pytest.mark.parametrize(
    "x, error, message",
    [
        (torch.ones(64), TypeError, "takes FP16 values, got torch.float32"),
        (torch.tensor([1.0, torch.inf, torch.nan]).half(), ValueError, "2 of 3 values are infinite or NaN"),
        (torch.tensor(1.0).half(), ValueError, "no axis to group along"),
    ],
)
def test_bad_values(x, error, message):
    with pytest.raises(error, match=message):
        Compressor(4).compress(x)


def test_bad_settings():
    with pytest.raises(ValueError, match="mantissa must be an int from 1 to 16, got 17"):
        Compressor(17)
    with pytest.raises(ValueError, match="lanes must be at least 1, got 0"):
        Compressor(4, lanes=0)
