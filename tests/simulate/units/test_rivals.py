"""Rival units: FIGNA has the kernels' bits, the others numpy's float32 sums."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.units.data import halves, spread
from tests.simulate.units.matrices import neurons
from tests.simulate.units.oracle import rival_events
from tilepress import kernels
from tilepress.simulate.units import rivals
from tilepress.simulate.units.rivals import Figna, FpFp, FpInt, Rival
from tilepress.tiles import unpack


@pytest.mark.parametrize("mantissa", [8, 11, 13, 14])
@pytest.mark.parametrize("group", [64, 128])
def test_figna_is_block_floating_point_with_a_long_mantissa(group, mantissa):
    x, (matrix, rows) = spread(320, seed=mantissa), neurons(3, 320, group)
    expected = kernels.linear(x.float(), matrix, activations=f"bfp:g64:m{mantissa}")
    assert [Figna(mantissa).dot(x, weights).total for weights in rows] == expected.tolist()


@settings(max_examples=30)
@given(x=halves(st.integers(1, 150)), seed=st.integers(0, 9))
def test_any_values(x, seed):
    matrix, (weights,) = neurons(1, len(x), 64, seed)
    result = {Rival.fp_fp: FpFp().dot(x, weights), Rival.fp_int: FpInt().dot(x, weights)}
    result[Rival.figna] = Figna().dot(x, weights)
    for unit, dot in result.items():
        assert dot.cycles == rivals.cycles(unit, len(x)) and dot.events == rival_events(unit, len(x), 64)
    assert result[Rival.figna].total == kernels.linear(x.float(), matrix, activations="bfp:g64:m14").item()
    assert result[Rival.fp_int].total == in_order(x, weights)
    scaled = unpack(matrix)[0].half()
    assert result[Rival.fp_fp].total == float(float_sum(x.numpy().astype(np.float64) * scaled.numpy()))


def float_sum(products):
    """One after another in float32, which holds every product of an FP16 number with another or with a weight."""
    total = np.float32(0)
    for product in products:
        assert np.float32(product) == product
        total = total + np.float32(product)
    return total


def in_order(x, weights):
    total = torch.zeros(1)
    for group, scale in enumerate(weights.scales):
        part = slice(64 * group, 64 * (group + 1))
        partial = float_sum(x[part].numpy().astype(np.float64) * weights.integers[part].numpy())
        total = kernels.reference.fused_multiply_add(torch.tensor([partial]), scale[None], total)
    return total.item()


def test_float_units_are_near_the_exact_product():
    x, (matrix, (weights,)) = torch.randn(640).half(), neurons(1, 640, 64)
    exact = kernels.reference.linear(x, matrix).item()
    magnitude = float(x.double().abs() @ unpack(matrix)[0].double().abs())
    assert abs(FpInt().dot(x, weights).total - exact) <= 640 * 2.0**-24 * magnitude
    assert abs(FpFp().dot(x, weights).total - exact) <= (2.0**-11 + 640 * 2.0**-24) * magnitude


def test_bad_input():
    weights = neurons(1, 64, 64)[1][0]
    for unit in (FpFp(), FpInt(), Figna()):
        with pytest.raises(TypeError, match="takes FP16 values"):
            unit.dot(torch.ones(64), weights)
        with pytest.raises(ValueError, match="63 activations meet 64 weights"):
            unit.dot(torch.ones(63).half(), weights)
    with pytest.raises(ValueError, match="inputs must be at least 1, got 0"):
        rivals.cycles(Rival.figna, 0)
