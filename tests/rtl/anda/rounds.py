"""Rounds for Anda's compressor, and what must come out: planes of `formats.bfp`, in the model's cycles."""

import numpy as np
import torch

from tests.rtl.clocked import clocked, enough, packed
from tests.rtl.data import half_bits, halves
from tilepress.formats.bfp import BFP, encode, pack_planes
from tilepress.rtl.anda.compressor import Compressor, CompressorParameters
from tilepress.simulate.units import anda_compressor

SIZES = ((1, 64), (3, 32), (16, 16))  # lanes, group


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


def any_round(random, lanes, group):
    return int(random.integers(1, 17)), np.stack([halves(random, group) for _ in range(lanes)])


def any_rounds(random, lanes, group, count):
    return [any_round(random, lanes, group) for _ in range(count)]


def assert_as_modelled(lanes, group, rounds):
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


def check(seed, vectors):
    """Words of random rounds, at least so many; how many. Most of them have one lane."""
    random, (lanes, group) = np.random.default_rng(seed), SIZES[(0, 0, 0, 1, 0, 0, 0, 2)[seed % 8]]
    rounds, words = enough(lambda: any_round(random, lanes, group), lambda one: 1 + one[0], vectors)
    assert_as_modelled(lanes, group, rounds)
    return words
