import math

import numpy as np
import pytest
import torch

from tilepress.evaluate import Estimate


def test_mean_and_error_as_numpy_gives_them():
    values = np.random.default_rng(0).normal(3, 2, 1000)
    estimate = Estimate.of(torch.from_numpy(values))
    assert estimate.value == pytest.approx(values.mean(), rel=1e-12)
    assert estimate.error == pytest.approx(values.std(ddof=1) / math.sqrt(1000), rel=1e-12)


def test_sums_are_taken_in_float64():
    values = torch.full([100_000], 0.1)  # float32 sums would be off in the sixth digit
    assert Estimate.of(values).value == pytest.approx(float(values[0]), rel=1e-12)


def test_one_value_has_no_error():
    estimate = Estimate.of(torch.tensor([2.0]))
    assert estimate.value == 2 and math.isnan(estimate.error)


def test_a_share_is_never_certain():
    share = Estimate.of_share(30, 100)
    assert share.value == 0.3 and share.error == pytest.approx(math.sqrt(0.3 * 0.7 / 100), rel=0.01)
    assert Estimate.of_share(20, 20).error == Estimate.of_share(0, 20).error == pytest.approx(1 / 42)


def test_the_exponential_spreads_as_its_slope():
    assert Estimate(2.0, 0.01).exp() == Estimate(math.exp(2), math.exp(2) * 0.01)
    assert Estimate(1000.0, 0.1).exp().value == math.inf


def test_text():
    assert str(Estimate(24.51587, 0.80001)) == "24.5159 ± 0.8000"
