"""Dot products for FP16 multiply-accumulate units, and what must come out."""

import numpy as np
import torch

from tests.rtl.clocked import enough
from tests.rtl.data import half_bits, halves
from tests.rtl.rivals.pairs import results
from tilepress.rtl.rivals.fp16_mac import Fp16Mac, Fp16MacParameters
from tilepress.simulate.units import fp16_mac
from tilepress.simulate.units.fp16_mac import WeightFormat


def any_dot(random, weights):
    """Finite FP16 activations, and weights of which half leave the sum finite."""
    count = int(random.integers(1, 80))
    x = halves(random, count)
    if random.integers(2):
        x = (random.standard_normal(count) * 2.0 ** random.integers(-12, 6)).astype(np.float16)
    if weights is WeightFormat.int4:
        return torch.from_numpy(x), torch.from_numpy(random.integers(-8, 8, count))
    other = halves(random, count) if random.integers(2) else random.standard_normal(count).astype(np.float16)
    return torch.from_numpy(x), torch.from_numpy(other)


def pairs(x, weights):
    patterns = half_bits(weights.numpy()) if weights.is_floating_point() else weights
    return [
        {"activation": value, "weight": int(weight)}
        for value, weight in zip(half_bits(x.numpy()).tolist(), patterns, strict=True)
    ]


def assert_as_modelled(weights, dots, pauses=None):
    unit = Fp16Mac(Fp16MacParameters(weights.value))
    seen = results(unit, [pairs(*dot) for dot in dots], pauses)
    expected = [fp16_mac.Fp16Mac(weights).dot(*dot) for dot in dots]
    assert [total for total, _ in seen] == [int(half_bits(one.total)) for one in expected]
    assert pauses or [cycles for _, cycles in seen] == [one.cycles for one in expected]


def check(weights, seed, vectors):
    """Pairs of random dot products, at least so many; how many."""
    random = np.random.default_rng(seed)
    dots, count = enough(lambda: any_dot(random, weights), lambda dot: len(dot[0]), vectors)
    assert_as_modelled(weights, dots)
    return count
