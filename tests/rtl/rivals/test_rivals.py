"""Rival units in hardware: the clocked models' bits and cycles."""

import numpy as np
import pytest
import torch

from tests.rtl.clocked import vectors
from tests.rtl.data import halves, to_bits
from tests.rtl.rivals.dots import (
    GROUP,
    SERIAL,
    any_dot,
    assert_figna,
    assert_ifpu,
    assert_serial,
    coming_before,
    figna_inputs,
    fp_int_inputs,
    ifpu_inputs,
    run,
)
from tests.simulate.units.matrices import neurons
from tilepress import kernels
from tilepress.rtl.rivals.figna import Figna, FignaParameters
from tilepress.rtl.rivals.fp_fp import FpFpParameters
from tilepress.rtl.rivals.fp_int import FpInt, FpIntParameters
from tilepress.rtl.rivals.ifpu import Ifpu, IfpuParameters
from tilepress.simulate.units import rivals
from tilepress.simulate.units.dot import Weights


@pytest.mark.parametrize("pauses", [0, 2])
@pytest.mark.parametrize("rival", SERIAL)
def test_one_pair_after_another(rival, pauses):
    random = np.random.default_rng(pauses)
    dots = [any_dot(random, SERIAL[rival][-1]) for _ in range(-(-vectors(16) // (1 + pauses)))]
    assert_serial(rival, dots, (lambda: int(random.integers(pauses))) if pauses else None)


@pytest.mark.parametrize("mantissa", [8, 11, 13, 14, 24])
def test_figna(mantissa):
    random = np.random.default_rng(mantissa)
    dots = [any_dot(random) for _ in range(vectors(8))]
    assert_figna(mantissa, dots)


def test_figna_on_many_lanes_has_the_kernels_bits():
    random, lanes, dots, expected = np.random.default_rng(1), 16, [], []
    for seed in range(vectors(20)):
        x = torch.from_numpy(halves(random, int(random.integers(1, 200))))
        matrix, (weights,) = neurons(1, len(x), GROUP, seed)
        dots.append((x, weights))
        expected.append(to_bits(kernels.linear(x.float(), matrix, activations="bfp:g64:m14").item()))
    inputs = coming_before(given for dot in dots for given in figna_inputs(*dot, lanes))
    steps = [-(-len(x) // lanes) for x, _ in dots]
    results = run(Figna(FignaParameters(lanes=lanes)), inputs, steps)
    assert [total for total, _ in results] == expected
    assert [cycles for _, cycles in results] == [count + 2 for count in steps]


@pytest.mark.parametrize("mantissa", [4, 14, 24])
def test_ifpu_has_fignas_bits(mantissa):
    random, parameters = np.random.default_rng(mantissa), IfpuParameters(mantissa)
    dots = [any_dot(random) for _ in range(vectors(8))]
    groups = [len(weights.scales) for _, weights in dots]
    assert_ifpu(mantissa, dots)
    with_pauses = run(Ifpu(parameters), ifpu_inputs(dots, lambda: int(random.integers(2))), [4 * n for n in groups])
    assert [total for total, _ in with_pauses] == [to_bits(rivals.Figna(mantissa).dot(*dot).total) for dot in dots]


@pytest.mark.parametrize("weight", [-8, 7])
def test_the_largest_sums(weight):
    x, weights = torch.full((GROUP,), 65504.0).half(), Weights(torch.full((GROUP,), weight), torch.ones(1), GROUP)
    ((total, _),) = run(Figna(FignaParameters()), coming_before(figna_inputs(x, weights, 1)), [GROUP])
    ((serial, _),) = run(FpInt(FpIntParameters()), list(fp_int_inputs(x, weights)), [GROUP])
    assert total == serial == to_bits(GROUP * weight * 65504.0)


@pytest.mark.parametrize(
    "parameters, change, message",
    [
        (FpFpParameters, {"weight_bits": 1}, "weight_bits must be an int from 2 to 8, got 1"),
        (FpIntParameters, {"weight_bits": 9}, "weight_bits must be an int from 2 to 8, got 9"),
        (FignaParameters, {"mantissa": 0}, "mantissa must be an int from 1 to 24, got 0"),
        (FignaParameters, {"lanes": 65}, "lanes must be an int from 1 to 64, got 65"),
        (FignaParameters, {"group": 1}, "group must be an int from 2 to 1024, got 1"),
        (FignaParameters, {"weight_bits": 1}, "weight_bits must be an int from 2 to 8, got 1"),
        (IfpuParameters, {"mantissa": 25}, "mantissa must be an int from 1 to 24, got 25"),
        (IfpuParameters, {"mantissa": 14, "lanes": 1}, "lanes must be an int from 2 to 1024, got 1"),
        (IfpuParameters, {"mantissa": 14, "weight_bits": 0}, "weight_bits must be an int from 2 to 8, got 0"),
    ],
)
def test_bad_parameters(parameters, change, message):
    with pytest.raises(ValueError, match=message):
        parameters(**change)
