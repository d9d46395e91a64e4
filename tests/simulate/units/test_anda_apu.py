"""Anda's unit: the bits of `kernels.linear`, and of integers summed plainly."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.units.data import halves, spread
from tests.simulate.units.matrices import neurons
from tilepress import kernels
from tilepress.formats.bfp import BFP, encode, pack_planes
from tilepress.simulate.units import anda_apu
from tilepress.simulate.units.anda_apu import Apu
from tilepress.simulate.units.anda_compressor import Compressor
from tilepress.simulate.units.dot import Weights

MANTISSAS = range(1, 17)


def run(row, weights, mantissa, intermediate="fp32"):
    return Apu(mantissa, intermediate).dot(Compressor(mantissa).compress(row).planes, weights)


@pytest.mark.parametrize("mantissa", MANTISSAS)
@pytest.mark.parametrize("inputs, group", [(320, 64), (200, 64), (256, 128)])
def test_the_kernels_bits(inputs, group, mantissa):
    x, (matrix, rows) = spread(2, inputs, seed=mantissa), neurons(2, inputs, group)
    expected = kernels.linear(x.float(), matrix, activations=f"bfp:g64:m{mantissa}")
    result = [[run(row, weights, mantissa).total for weights in rows] for row in x]
    assert result == expected.tolist()


@settings(max_examples=60)
@given(x=halves(st.integers(1, 150)), mantissa=st.sampled_from(MANTISSAS), seed=st.integers(0, 99))
def test_any_values(x, mantissa, seed):
    matrix, (weights,) = neurons(1, len(x), 64, seed)
    result, groups = run(x, weights, mantissa), -(-len(x) // 64)
    assert result.total == kernels.linear(x.float(), matrix, activations=f"bfp:g64:m{mantissa}").item()
    assert result.output == kernels.linear(x, matrix, activations=f"bfp:g64:m{mantissa}").item()
    assert result.cycles == anda_apu.cycles(groups, mantissa)
    assert result.events == anda_apu.events(groups, mantissa)


@pytest.mark.parametrize("mantissa", MANTISSAS)
@pytest.mark.parametrize("weight", [-8, 7])
@pytest.mark.parametrize("value", [65504.0, -65504.0, 2.0**-24])
def test_extremes_fit_the_accumulator(value, weight, mantissa):
    x = torch.full((64,), value, dtype=torch.float16)
    weights = Weights(torch.full((64,), weight), torch.ones(1), 64)
    encoded = encode(x, BFP(64, mantissa))
    unit = 2.0 ** (max(int(encoded.exponent[0]), 1) - 15 - (mantissa - 1))
    dot = int(encoded.magnitude.sum()) * weight * (-1 if value < 0 else 1)
    assert run(x, weights, mantissa).total == float(np.float32(dot)) * unit


def test_long_rows_are_spans():
    """Kernels sum 2048 inputs, and then those sums."""
    x, (matrix, (weights,)) = spread(2500), neurons(1, 2500, 64)
    total = torch.zeros(())
    for part, first in ((slice(0, 2048), 0), (slice(2048, 2500), 32)):
        count = -(-len(x[part]) // 64)
        of_part = Weights(weights.integers[part], weights.scales[first : first + count], 64)
        total = total + run(x[part], of_part, 6).total
    assert total.item() == kernels.linear(x.float(), matrix, activations="bfp:g64:m6").item()


def test_sums_in_halves_are_less_exact():
    x, (_, (weights,)) = torch.randn(512, generator=torch.Generator().manual_seed(0)).half(), neurons(1, 512, 64)
    exact, paper = (run(x, weights, 8, how).total for how in ("fp32", "fp16"))
    magnitude = float((x.double().abs() * weights.integers.abs()).reshape(-1, 64).sum(1) @ weights.scales.double())
    assert 0 < abs(exact - paper) <= 2.0**-11 * magnitude
    weights = Weights(torch.full((64,), 7), torch.ones(1), 64)
    assert run(torch.full((64,), 1000.0, dtype=torch.float16), weights, 8, "fp16").total == 65504.0


def test_a_group_takes_a_cycle_a_word():
    assert [anda_apu.cycles_per_group(m) for m in (1, 5, 16)] == [2, 6, 17]
    assert anda_apu.cycles(4, 5) - anda_apu.cycles(3, 5) == 6
    assert anda_apu.events(2, 5).plane_adds == 2 * 5 * 63


def test_what_does_not_fit_is_refused():
    row = pack_planes(encode(torch.ones(64), BFP(64, 5)))
    weights = Weights(torch.ones(64, dtype=torch.int64), torch.ones(1), 64)
    with pytest.raises(ValueError, match=r"set up for a row of activations in bfp:g64:m6, not \[64\] in bfp:g64:m5"):
        Apu(6).dot(row, weights)
    with pytest.raises(ValueError, match="64 activations meet 32 weights"):
        Apu(5).dot(row, Weights(torch.ones(32, dtype=torch.int64), torch.ones(1), 64))
    with pytest.raises(ValueError, match="share a scale in multiples of 64, not in groups of 32"):
        Apu(5).dot(row, Weights(torch.ones(64, dtype=torch.int64), torch.ones(2), 32))
    with pytest.raises(ValueError, match="integers of 4 bits, -8 to 7, not 0 to 8"):
        Weights(torch.tensor([0, 8]), torch.ones(1), 64)
    with pytest.raises(ValueError, match="100 weights in groups of 64 want 2 scales, not"):
        Weights(torch.zeros(100, dtype=torch.int64), torch.ones(1), 64)
    with pytest.raises(ValueError, match="weights are integers"):
        Weights(torch.zeros(64), torch.ones(1), 64)
    with pytest.raises(ValueError, match="groups must be at least 1, got 0"):
        anda_apu.cycles(0, 4)
