"""Anda's compressor in hardware: planes of `formats.bfp`, and the clocked model's cycles."""

import numpy as np
import pytest
import torch

from tests.rtl.clocked import clocked, packed, vectors
from tests.rtl.data import half_bits, halves
from tilepress.formats.bfp import BFP, encode, pack_planes
from tilepress.rtl.anda.compressor import Compressor, CompressorParameters
from tilepress.simulate.units import anda_compressor


def run(parameters, rounds, pauses=lambda: 0):
    """Words [1 + mantissa][lanes], exponents [lanes] and the cycle of the last word of each round: a mantissa, and FP16
    values [lanes, group]."""
    inputs, ends = [], []
    for mantissa, values in rounds:
        inputs.append({"planes": mantissa, "valid": 1, "values": packed(half_bits(values).ravel(), 16)})
        inputs += [{"valid": 0}] * mantissa
        ends.append(len(inputs))
        inputs += [{"valid": 0}] * pauses()
    seen = clocked(Compressor(parameters), inputs, ["word_valid", "words", "exponents"])
    words = [fields(words, parameters.group, parameters.lanes) for valid, words, _ in seen if valid]
    exponents = [fields(seen[end - 1][2], 5, parameters.lanes) for end in ends]
    counts = [1 + mantissa for mantissa, _ in rounds]
    starts = np.cumsum([0, *counts])
    return [words[at : at + count] for at, count in zip(starts, counts, strict=False)], exponents, ends


def fields(number, bits, count):
    return [number >> bits * place & (1 << bits) - 1 for place in range(count)]


def any_rounds(lanes, group, count):
    random = np.random.default_rng(lanes)
    return [(1 + n % 16, np.stack([halves(random, group) for _ in range(lanes)])) for n in range(count)]


@pytest.mark.parametrize("lanes, group, quick", [(1, 64, 48), (3, 32, 16), (16, 16, 4)])
def test_planes_and_cycles(lanes, group, quick):
    rounds = any_rounds(lanes, group, vectors(quick))
    words, exponents, ends = run(CompressorParameters(lanes, group), rounds)
    for (mantissa, values), planes, shared in zip(rounds, words, exponents, strict=True):
        expected = pack_planes(encode(torch.from_numpy(values), BFP(group, mantissa)))
        of_lanes = zip(*planes, strict=True)
        assert [list(lane) for lane in of_lanes] == [
            [packed(word, 8) for word in row[0]] for row in expected.planes.tolist()
        ]
        assert shared == expected.exponent.ravel().tolist()
    spans = np.diff([0, *ends]).tolist()
    assert spans == [anda_compressor.cycles(lanes, mantissa, lanes) for mantissa, _ in rounds]


def test_rounds_with_pauses():
    random, rounds = np.random.default_rng(0), any_rounds(1, 16, vectors(20))
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
