"""A weight matrix in training: what it stands for, and its gradients against autograd."""

import pytest
import torch

from tests.compression.layers import calibration, layer
from tilepress.compression import WeightPlan, compress_weight, decompress_weight
from tilepress.compression.grid import grouped, ungrouped, value_range
from tilepress.compression.trained import TrainedWeight
from tilepress.formats import parse_weight

NAMES = ["int4:g32", "int8:row", "uint3:g64", "uint4:g32", "mxfp4", "nf4:g64", "e4m3:g32", "bf16", "fp16"]


def trained(name, density=0.5, neurons=6, inputs=80, seed=0):
    format = parse_weight(name)
    start = compress_weight(layer(neurons, inputs), WeightPlan(format, density))
    generator = torch.Generator().manual_seed(seed)
    weight = TrainedWeight(start, format)
    for parameter in weight.parameters.values():
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return start, weight


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("density", [1.0, 0.5])
def test_what_is_packed_is_what_was_trained(name, density):
    start, weight = trained(name, density)
    assert torch.equal(decompress_weight(weight.compressed(), weight.format), weight.rounded())
    assert not torch.equal(weight.rounded(), decompress_weight(start, weight.format))


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_from_what_was_compressed(name):
    format = parse_weight(name)
    start = compress_weight(layer(6, 80), WeightPlan(format, 0.5))
    expected = decompress_weight(start, format)
    torch.testing.assert_close(TrainedWeight(start, format).rounded(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_dropped_weights_stay_zero_and_have_no_gradient(name):
    start, weight = trained(name)
    assert weight.rounded()[~start.mask].eq(0).all() and weight.compressed().mask is start.mask
    places = ungrouped(weight.gradients(torch.ones(6, 80))["places"], 80)
    assert places[~start.mask].eq(0).all() and places[start.mask].any()


def straight_through(x, rounded):
    return x + (rounded - x).detach()


def slow(weight, places, growth, shift):
    """The rounded weights as autograd sees them: rounding to stored steps, zero points and codes passes straight
    through, and nothing passes what is out of range."""
    values = places * weight.constants["unit"]
    grid = weight.grid
    step = straight_through(weight.constants["step"] * growth.exp(), grid.step)
    low, high = value_range(weight.format.element)
    zero = 0.0
    if shift is not None:
        zero = straight_through(weight.constants["zero"] + shift, grid.zero)
    inside = torch.minimum(torch.maximum(values / step + zero, torch.tensor(low)), torch.tensor(high))
    codes = grid.round(values) / grid.step + (0.0 if grid.zero is None else grid.zero)
    rounded = (straight_through(inside, codes.detach()) - zero) * step
    return ungrouped(rounded, weight.inputs) * (1 if weight.mask is None else weight.mask)


@pytest.mark.parametrize("name", ["int4:g32", "uint3:g32", "nf4:g64", "e4m3:g32"])
@pytest.mark.parametrize("density", [1.0, 0.5])
def test_gradients_are_those_of_autograd(name, density):
    _, weight = trained(name, density)
    leaves = {key: value.clone().requires_grad_() for key, value in weight.parameters.items()}
    values = slow(weight, leaves["places"], leaves["growth"], leaves.get("shift"))
    torch.testing.assert_close(values, weight.rounded(), rtol=1e-4, atol=1e-6)
    outer = torch.randn(values.shape, generator=torch.Generator().manual_seed(3))
    expected = torch.autograd.grad((values * outer).sum(), list(leaves.values()))
    # The grid's step is the stored one: gradients by its logarithm are those at that step.
    for (key, gradient), wanted in zip(weight.gradients(outer).items(), expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=0.02, atol=1e-5, msg=key)


@pytest.mark.parametrize(("name", "density"), [("bf16", 0.5), ("int3:g32", 1.0), ("uint4:g32", 0.5), ("int8:row", 0.5)])
def test_descent_lowers_the_error_of_one_layers_outputs(name, density):
    """min ‖X Wᵀ − X Ŵᵀ‖², whose gradient is 2 (Ŵ − W) XᵀX."""
    format, x, wanted = parse_weight(name), calibration(64), layer(16, 64)
    weight = TrainedWeight(compress_weight(wanted, WeightPlan(format, density)), format)
    adam, hessian = torch.optim.Adam(weight.parameters.values(), lr=0.01), x.T @ x

    def error():
        return float((x @ (weight.rounded() - wanted).T).square().sum())

    before = error()
    for step in range(100):
        adam.param_groups[0]["lr"] = 0.01 * (1 - step / 100)
        for parameter, gradient in zip(
            weight.parameters.values(), weight.gradients((weight.rounded() - wanted) @ hessian).values(), strict=True
        ):
            parameter.grad = gradient
        adam.step()
    assert error() < 0.9 * before


def test_a_kept_weight_finds_its_least_squares_value():
    """Two equal inputs, one dropped: the other takes the weights of both."""
    mask = torch.tensor([[True, False]] * 3)
    format, wanted = parse_weight("bf16"), torch.tensor([[1.0, 0.5]] * 3)
    start = compress_weight(wanted, WeightPlan(format, 0.5))
    assert torch.equal(start.mask, mask)
    weight, hessian = TrainedWeight(start, format), torch.ones(2, 2)
    adam = torch.optim.Adam(weight.parameters.values(), lr=0.05)
    for _ in range(100):
        weight.parameters["places"].grad = weight.gradients((weight.rounded() - wanted) @ hessian)["places"]
        adam.step()
    torch.testing.assert_close(weight.rounded(), torch.tensor([[1.5, 0.0]] * 3), rtol=0.02, atol=0)


def test_groups_are_cut_as_the_format_cuts_them():
    _, weight = trained("int4:g32", inputs=80)
    assert weight.parameters["places"].shape == (6, 3, 32) and weight.parameters["growth"].shape == (6, 3, 1)
    assert grouped(weight.rounded(), weight.format).shape == (6, 3, 32)
