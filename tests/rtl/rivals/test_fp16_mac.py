"""FP16 multiply-accumulate in hardware: the clocked model's bits and cycles."""

import numpy as np
import pytest
import torch

from tests.rtl.clocked import vectors
from tests.rtl.rivals.halves import any_dot, assert_as_modelled
from tilepress.rtl.rivals.fp16_mac import Fp16MacParameters
from tilepress.simulate.units.fp16_mac import WeightFormat


@pytest.mark.parametrize("pauses", [0, 3])
@pytest.mark.parametrize("weights", WeightFormat)
def test_one_pair_after_another(weights, pauses):
    random = np.random.default_rng(pauses)
    dots = [any_dot(random, weights) for _ in range(vectors(24))]
    assert_as_modelled(weights, dots, (lambda: int(random.integers(pauses))) if pauses else None)


CORNERS = [0.0, -0.0, 2.0**-24, -(2.0**-24), 2.0**-14 - 2.0**-24, 2.0**-14, 1.0, 1 + 2.0**-10, 65504.0, -65504.0]


@pytest.mark.parametrize("weights", WeightFormat)
def test_corners_follow_each_other(weights):
    """The product of every corner with one joins every corner's product with another."""
    corners = torch.tensor(CORNERS).half()
    others = corners if weights is WeightFormat.fp16 else torch.arange(-8, 8)
    pairs_of_weights = torch.stack([others, others.flip(0)], 1)
    pairs_of_values = torch.cartesian_prod(corners, corners)
    assert_as_modelled(weights, [(x, weight) for x in pairs_of_values for weight in pairs_of_weights])


def test_bad_parameters():
    with pytest.raises(ValueError, match="weight_format must be one of 'fp16', 'int4', got 'fp8'"):
        Fp16MacParameters("fp8")
