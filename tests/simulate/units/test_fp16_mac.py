"""FP16 multiply-accumulate: sums beside numpy's float16, and beside exact fractions where numpy would round twice."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.units.data import halves, spread
from tilepress.simulate.units import fp16_mac
from tilepress.simulate.units.fp16_mac import Fp16Mac, WeightFormat


def in_numpy(x, weights):
    """Products that FP32 holds join the sum in float64, which holds both of ordinary size, and are rounded to FP16."""
    total = np.float64(0)
    for value, weight in zip(x.double().numpy(), weights.double().numpy(), strict=True):
        with np.errstate(over="ignore"):
            total = np.float64(np.float16(value * weight + total))
    return float(total)


@pytest.mark.parametrize("weights", WeightFormat)
def test_sums_of_ordinary_size_are_numpys(weights):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(300, generator=generator)).half()
    other = torch.randn(300, generator=generator).half()
    if weights is WeightFormat.int4:
        other = torch.randint(-8, 8, (300,), generator=generator)
    dot = Fp16Mac(weights).dot(x, other)
    assert dot.total == in_numpy(x, other) and abs(dot.total - float(x.double() @ other.double())) < 1


@settings(max_examples=40)
@given(x=halves(st.integers(1, 40)), seed=st.integers(0, 99))
def test_cycles_events_and_first_sum(x, seed):
    """numpy multiplies two FP16 numbers in FP32, which holds their product, and rounds once."""
    other = spread(len(x), seed=seed)
    for weights, values in ((WeightFormat.fp16, other), (WeightFormat.int4, other.clamp(-8, 7).int())):
        dot = Fp16Mac(weights).dot(x, values)
        assert dot.cycles == fp16_mac.cycles(len(x)) and dot.events == fp16_mac.events(len(x), weights)
        with np.errstate(over="ignore"):
            product = np.float32(x[0]) * np.float32(values[0])
            expected = float(np.float16(product))
        assert Fp16Mac(weights).dot(x[:1], values[:1]).total == expected or abs(product) < 2.0**-126


@given(a=halves(2))
def test_sums_of_two_are_numpys(a):
    with np.errstate(over="ignore"):
        expected = float(a.numpy()[0] + a.numpy()[1])
    assert Fp16Mac(WeightFormat.fp16).dot(a, torch.ones(2).half()).total == expected


def test_a_product_is_not_rounded_before_it_is_added():
    x, y = torch.tensor([1.0, 1 + 2.0**-10]).half(), torch.tensor([-1.0, 1 - 2.0**-10]).half()
    assert Fp16Mac(WeightFormat.fp16).dot(x, y).total == -(2.0**-20)


def test_what_is_infinite_stays_so():
    x = torch.tensor([65504.0, 65504.0, -65504.0]).half()
    assert Fp16Mac(WeightFormat.fp16).dot(x, torch.ones(3).half()).total == float("inf")
    assert Fp16Mac(WeightFormat.int4).dot(x[:1], torch.tensor([-8])).total == -float("inf")


def test_bad_input():
    x = torch.ones(3).half()
    with pytest.raises(ValueError, match=r"pairs are two rows \[pairs\], not \[3\] and \[2\]"):
        Fp16Mac(WeightFormat.fp16).dot(x, x[:2])
    with pytest.raises(TypeError, match="takes FP16 values"):
        Fp16Mac(WeightFormat.fp16).dot(x, x.float())
    with pytest.raises(TypeError, match=r"weights are integers of 4 bits, not torch.float16"):
        Fp16Mac(WeightFormat.int4).dot(x, x)
    with pytest.raises(ValueError, match="weights are integers of 4 bits, not -8 to 8"):
        Fp16Mac(WeightFormat.int4).dot(x, torch.tensor([-8, 0, 8]))
    with pytest.raises(ValueError, match="pairs must be at least 1, got 0"):
        fp16_mac.cycles(0)
