"""Kept weights fitted anew."""

import pytest
import torch

from tests.compression.layers import layer, statistics
from tilepress.compression import WeightPlan, compress_weight, magnitude_mask
from tilepress.compression.hessian import damped
from tilepress.compression.refit import refit
from tilepress.formats import parse_weight


def best(weight, mask, hessian):
    """float64: the normal equations of each neuron, solved one by one."""
    hessian, values = damped(hessian), torch.zeros(weight.shape, dtype=torch.float64)
    for row, (wanted, kept) in enumerate(zip(weight.double(), mask, strict=True)):
        k = kept.nonzero().flatten()
        values[row, k] = torch.linalg.solve(hessian[k][:, k], hessian[k] @ wanted)
    return values


def loss(values, weight, hessian):
    lost = values.double() - weight
    return float(((lost @ damped(hessian)) * lost).sum())


@pytest.mark.parametrize("density", [0.1, 0.5, 0.9])
def test_it_comes_close_to_the_best_weights(density):
    weight, hessian = layer(300, 64), statistics(64).hessian
    mask = magnitude_mask(weight, density)
    found = refit(weight, mask, hessian, weight * mask)
    least, plain = (loss(values, weight, hessian) for values in (best(weight, mask, hessian), weight * mask))
    assert not found[~mask].any()
    assert loss(found, weight, hessian) - least < 0.01 * (plain - least)


def test_what_is_best_already_stays():
    weight, hessian = layer(8, 32), statistics(32).hessian
    assert torch.equal(refit(weight, torch.ones_like(weight, dtype=torch.bool), hessian, weight), weight)
    mask = magnitude_mask(weight, 0.5)
    start = best(weight, mask, hessian).float()
    torch.testing.assert_close(refit(weight, mask, hessian, start), start, rtol=1e-3, atol=1e-6)


def test_nothing_kept_and_inputs_that_are_always_zero():
    weight, hessian = layer(4, 32), statistics(32).hessian.clone()
    hessian[:5], hessian[:, :5] = 0, 0
    none = torch.zeros_like(weight, dtype=torch.bool)
    assert not refit(weight, none, hessian, weight * none).any()
    assert bool(refit(weight, ~none, torch.zeros(32, 32), weight).isfinite().all())


@pytest.mark.parametrize("method", [("sparsegpt", "rtn"), ("sparsegpt", "gptq"), ("wanda", "gptq")], ids=str)
@pytest.mark.parametrize("name", ["bf16", "int8:row", "int4:g32"])
def test_layers_lose_less_by_it(method, name):
    prune, quantize = method
    fitted, plain = (
        compress_weight(
            layer(48, 192), WeightPlan(parse_weight(name), 0.5, prune, quantize=quantize, refit=on), statistics(192)
        )
        for on in (True, False)
    )
    assert fitted.error < (1 if method == ("sparsegpt", "gptq") and name == "int4:g32" else 0.95) * plain.error
