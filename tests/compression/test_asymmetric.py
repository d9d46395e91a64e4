"""Targets from the dense stream."""

import pytest
import torch

from tests.compression.layers import calibration, layer
from tilepress.compression import InputStatistics, WeightPlan, compress_weight, decompress_weight
from tilepress.compression.asymmetric import aimed
from tilepress.compression.hessian import damped, upper_factor
from tilepress.formats import parse_weight

INPUTS, FORMAT = 64, parse_weight("int3:g32")
METHODS = [
    {"quantize": "gptq"},
    {"quantize": "gptq", "density": 0.5, "prune": "sparsegpt"},
    {"quantize": "learned-clip"},
    {"density": 0.5, "prune": "sparsegpt"},
]


def streams():
    """Inputs in the dense model and in a compressed one: smaller, and not of their own mixture."""
    dense = calibration(INPUTS)
    return dense, 0.9 * dense + 0.2 * calibration(INPUTS, seed=5) + 0.1 * dense.roll(1, 1)


def gathered(x, dense):
    statistics = InputStatistics(INPUTS, drift=True)
    for part, ideal in zip(x.split(100), dense.split(100), strict=True):
        statistics.add(part, ideal)
    return statistics


def compressed(x, dense, target, **method):
    result = compress_weight(layer(24, INPUTS), WeightPlan(FORMAT, target=target, **method), gathered(x, dense))
    return decompress_weight(result, FORMAT)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_equal_streams_give_the_symmetric_result_to_the_bit(method):
    x, _ = streams()
    assert torch.equal(compressed(x, x, "dense", **method), compressed(x, x, "layer", **method))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_outputs_are_nearer_to_the_dense_model(method):
    dense, x = streams()
    ideal = dense @ layer(24, INPUTS).T
    one, other = (
        float((x @ compressed(x, dense, target, **method).T - ideal).square().sum()) for target in ("dense", "layer")
    )
    assert one < 0.97 * other


def test_aimed_weights_are_the_least_squares_solution():
    dense, x = (part.double() for part in streams())
    weight, statistics = layer(24, INPUTS), gathered(*reversed(streams()))
    found = aimed(weight, upper_factor(statistics.hessian), statistics.drift)
    hessian = damped(statistics.hessian)
    expected = weight + weight.double() @ ((dense - x).T @ x / len(x)) @ torch.linalg.inv(hessian)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-5)


def test_the_drift_is_a_mean_of_products():
    dense, x = streams()
    torch.testing.assert_close(gathered(x, dense).drift, (dense - x).T @ x / len(x), rtol=1e-3, atol=1e-4)
    statistics = InputStatistics(INPUTS, drift=True)
    statistics.add(x)
    assert not statistics.drift.any()


def test_what_is_refused():
    statistics = InputStatistics(8, drift=True)
    with pytest.raises(ValueError, match=r"the dense model are \[3, 8\], those in their place \[4, 8\]"):
        statistics.add(torch.ones(4, 8), torch.ones(3, 8))
    with pytest.raises(ValueError, match="of the dense model must be finite: 8 are not"):
        statistics.add(torch.ones(1, 8), torch.full((1, 8), torch.inf))
    assert statistics.count == 0
    plain = InputStatistics(8)
    plain.add(torch.ones(4, 8))
    plan = WeightPlan(FORMAT, quantize="gptq", target="dense")
    with pytest.raises(ValueError, match=r"the drift of inputs: gather it with InputStatistics\(8, drift=True"):
        plan.check_statistics(plain, 8)
    with pytest.raises(ValueError, match="target is one of layer, dense, not 'other'"):
        WeightPlan(FORMAT, target="other")
