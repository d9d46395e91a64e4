"""Integer multiply-accumulate units in hardware: the clocked models' bits and cycles."""

import numpy as np
import pytest
import torch

from tests.rtl.clocked import clocked, vectors
from tests.rtl.rivals.integers import any_dot, any_group, assert_int_mac, assert_m_ant_mac, sum_pairs
from tests.rtl.rivals.pairs import marked
from tilepress.rtl.rivals.int_mac import IntMacParameters
from tilepress.rtl.rivals.m_ant_mac import MAntMacParameters, MAntSums
from tilepress.simulate.units import m_ant_mac


def some(random, most):
    return (lambda: int(random.integers(most))) if most else None


@pytest.mark.parametrize("pauses", [0, 3])
def test_int_mac(pauses):
    random = np.random.default_rng(pauses)
    assert_int_mac([any_dot(random) for _ in range(vectors(24))], some(random, pauses))


@pytest.mark.parametrize("bits", [(8, 8, 16), (4, 8, 12), (16, 16, 64), (2, 2, 4)])
def test_sums_wrap(bits):
    random = np.random.default_rng(sum(bits))
    assert_int_mac([any_dot(random, bits[:2]) for _ in range(vectors(16))], bits=bits)


@pytest.mark.parametrize("pauses", [0, 3])
def test_m_ant_mac(pauses):
    random = np.random.default_rng(pauses)
    assert_m_ant_mac([any_group(random) for _ in range(vectors(24))], some(random, pauses))


def test_m_ant_sums():
    """What joins them for coefficients 0 and 1 is what the model has."""
    random = np.random.default_rng(0)
    groups = [any_group(random)[:2] for _ in range(vectors(24))]
    inputs = [given for one in groups for given in marked(sum_pairs(*one))]
    seen = clocked(MAntSums(MAntMacParameters()), [*inputs, *[{"valid": 0}] * 2], ["done", "multiplied", "shifted"])
    sums = [(cycle, multiplied, shifted) for cycle, (done, multiplied, shifted) in enumerate(seen) if done]
    for (x, codes), (_, multiplied, shifted) in zip(groups, sums, strict=True):
        assert shifted == m_ant_mac.MAntMac().dot(x, codes, 0).total
        assert multiplied + shifted == m_ant_mac.MAntMac().dot(x, codes, 1).total
    assert [cycle for cycle, *_ in sums] == np.cumsum([len(x) for x, _ in groups]).tolist()


@pytest.mark.parametrize("group", [2, 64, 100])
@pytest.mark.parametrize("code", [7, 15])
@pytest.mark.parametrize("x", [-128, 127])
def test_the_largest_sums_of_groups(group, code, x):
    every = torch.full((group,), x), torch.full((group,), code), 255
    one = torch.tensor([x]), torch.tensor([code]), 255
    assert_m_ant_mac([every, one, one, every], group=group)


@pytest.mark.parametrize(
    "parameters, change, message",
    [
        (IntMacParameters, {"activation_bits": 1}, "activation_bits must be an int from 2 to 16, got 1"),
        (IntMacParameters, {"weight_bits": 17}, "weight_bits must be an int from 2 to 16, got 17"),
        (IntMacParameters, {"sum_bits": 15}, "sum_bits must be an int from 16 to 64, got 15"),
        (MAntMacParameters, {"activation_bits": 1}, "activation_bits must be an int from 2 to 16, got 1"),
        (MAntMacParameters, {"coefficient_bits": 0}, "coefficient_bits must be an int from 1 to 16, got 0"),
        (MAntMacParameters, {"group": 1}, "group must be an int from 2 to 1024, got 1"),
    ],
)
def test_bad_parameters(parameters, change, message):
    with pytest.raises(ValueError, match=message):
        parameters(**change)
