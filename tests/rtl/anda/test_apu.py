"""Anda's unit in hardware: bits of `kernels.linear` and of the clocked model, and the model's cycles."""

import numpy as np
import pytest
import torch

from tests.rtl.anda.dots import LANES, any_dot, assert_as_modelled, run
from tests.rtl.clocked import clocked, packed, vectors
from tests.rtl.data import halves, to_bits
from tests.simulate.units.matrices import neurons
from tilepress import kernels
from tilepress.formats.bfp import BFP, BitPlanes, encode, pack_planes
from tilepress.rtl.anda.apu import Apu, ApuParameters
from tilepress.simulate.units import anda_apu
from tilepress.simulate.units.dot import Weights


@pytest.mark.parametrize("intermediate", ["fp32", "fp16"])
def test_the_models_bits_and_cycles(intermediate):
    random = np.random.default_rng(0)
    dots = [any_dot(random) for _ in range(vectors(30))]
    assert_as_modelled(dots, intermediate)


def test_the_kernels_bits():
    random, dots, expected = np.random.default_rng(1), [], []
    for seed in range(vectors(25)):
        mantissa, inputs = int(random.integers(1, 17)), int(random.integers(1, 200))
        x, (matrix, (weights,)) = torch.from_numpy(halves(random, inputs)), neurons(1, inputs, LANES, seed)
        dots.append((pack_planes(encode(x, BFP(LANES, mantissa))), weights))
        expected.append(kernels.linear(x.float(), matrix, activations=f"bfp:g64:m{mantissa}").item())
    assert [total for total, _ in run(ApuParameters(), dots)] == [to_bits(value) for value in expected]


def test_words_that_come_with_pauses():
    random = np.random.default_rng(2)
    dots = [any_dot(random) for _ in range(vectors(8))]
    steady = [total for total, _ in run(ApuParameters(), dots)]
    assert [total for total, _ in run(ApuParameters(), dots, lambda: int(random.integers(3)))] == steady


def test_a_smaller_unit():
    """Of 6 lanes, weights of 3 bits and 5 planes: sums as plain integers have them."""
    random, parameters = np.random.default_rng(3), ApuParameters(lanes=6, weight_bits=3, mantissa=5)
    inputs, expected = [], []
    for _ in range(vectors(120)):
        signs, weights, magnitudes = (random.integers(*span, 6) for span in ((0, 2), (-4, 4), (0, 32)))
        inputs.append({"valid": 0, "load": 1, "weights": packed(weights, 3), "scale": to_bits(1.0)})
        marks = {"exponent": 15 + 4, "planes": 5, "first": 1, "last": 1}
        inputs.append({"valid": 1, "load": 0, "word": packed(signs, 1), **marks})
        inputs += [{"word": packed(magnitudes >> place, 1)} for place in reversed(range(5))]
        expected.append(float((np.where(signs, -weights, weights) * magnitudes).sum()))
    seen = clocked(Apu(parameters), inputs + [{"valid": 0}] * 4, ["done", "total"])
    assert [total for done, total in seen if done] == [to_bits(value) for value in expected]


@pytest.mark.parametrize("mantissa", [1, 16])
@pytest.mark.parametrize("weight, negative", [(-8, 0), (-8, 255), (7, 0)])
def test_the_largest_sums(weight, negative, mantissa):
    planes = torch.full((1, 1 + mantissa, LANES // 8), 255, dtype=torch.uint8)
    planes[:, 0] = negative
    dot = BitPlanes(BFP(LANES, mantissa), (LANES,), 0, planes, torch.tensor([15 + mantissa - 1], dtype=torch.uint8))
    weights = Weights(torch.full((LANES,), weight), torch.ones(1), LANES)
    ((total, cycles),) = run(ApuParameters(), [(dot, weights)])
    assert total == to_bits(LANES * weight * (2**mantissa - 1) * (-1 if negative else 1))
    assert cycles == anda_apu.cycles(1, mantissa)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"lanes": 1}, "lanes must be an int from 2 to 1024, got 1"),
        ({"weight_bits": 9}, "weight_bits must be an int from 2 to 8, got 9"),
        ({"mantissa": 17}, "mantissa must be an int from 1 to 16, got 17"),
        ({"mantissa": 4.0}, "mantissa must be an int from 1 to 16, got 4.0"),
        ({"intermediate": "bf16"}, "intermediate must be one of 'fp32', 'fp16', got 'bf16'"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        ApuParameters(**change)
