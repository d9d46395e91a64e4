"""Anda's compressor in hardware: planes of `formats.bfp`, and the clocked model's cycles."""

import numpy as np
import pytest

from tests.rtl.anda.rounds import any_rounds, assert_as_modelled, run
from tests.rtl.clocked import clocked, packed, vectors
from tilepress.rtl.anda.compressor import Compressor, CompressorParameters


@pytest.mark.parametrize("lanes, group, quick", [(1, 64, 48), (3, 32, 16), (16, 16, 4)])
def test_planes_and_cycles(lanes, group, quick):
    assert_as_modelled(lanes, group, any_rounds(np.random.default_rng(lanes), lanes, group, vectors(quick)))


def test_rounds_with_pauses():
    random = np.random.default_rng(0)
    rounds = any_rounds(random, 1, 16, vectors(20))
    parameters = CompressorParameters(1, 16)
    assert run(parameters, rounds, lambda: int(random.integers(3)))[:2] == run(parameters, rounds)[:2]


def test_nothing_is_taken_while_a_round_goes_on():
    unit = Compressor(CompressorParameters(1, 2))
    first, other = packed([0x3C00, 0x3C00], 16), packed([0x4000, 0xC000], 16)
    inputs = [{"planes": 3, "valid": 1, "values": first}, *[{"values": other}] * 4]
    seen = clocked(unit, inputs, ["ready", "word_valid", "words", "exponents"])
    assert seen[:4] == [(0, 1, 0, 15), (0, 1, 3, 15), (0, 1, 0, 15), (1, 1, 0, 15)]
    assert seen[4] == (0, 1, 2, 16)


def test_what_is_not_finite_shows():
    """By an exponent that no finite group has."""
    for bad in (0x7C00, 0xFE00):
        inputs = [{"planes": 3, "valid": 1, "values": packed([0x7BFF, bad], 16)}]
        assert clocked(Compressor(CompressorParameters(1, 2)), inputs, ["exponents"]) == [(31,)]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"lanes": 0}, "lanes must be an int from 1 to 64, got 0"),
        ({"group": 1}, "group must be an int from 2 to 128, got 1"),
        ({"mantissa": 0}, "mantissa must be an int from 1 to 16, got 0"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        CompressorParameters(**change)
