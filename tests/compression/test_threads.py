"""The same bytes with any number of threads."""

import threading

import pytest
import torch

from tests.compression.layers import layer
from tilepress.compression import InputStatistics, WeightPlan, compress_weight
from tilepress.compression.hessian import upper_factor
from tilepress.compression.threads import in_order, one_thread, panels, run_all
from tilepress.formats import parse_weight

THREADS = (1, 2, 3, 5)
SHAPES = [(600, 576), (70, 1100), (33, 65)]
PLANS = {
    "gptq": WeightPlan(parse_weight("int4:g32"), quantize="gptq"),
    "gptq, sparse": WeightPlan(parse_weight("uint4:g32"), 0.5, "sparsegpt", quantize="gptq"),
    "sparsegpt": WeightPlan(parse_weight("int8:row"), 0.5, "sparsegpt"),
    "wanda": WeightPlan(parse_weight("int4:g32"), 0.5, "wanda"),
    "learned-clip": WeightPlan(parse_weight("int4:g32"), quantize="learned-clip"),
}


@pytest.fixture
def threads():
    """Sets torch's number of threads, which is as before afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def inputs(count, tokens=300):
    """Correlated ones, made without a product that depends on threads."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, count, generator=generator)
    return x + 0.5 * x.roll(1, 1) + 0.25 * x.roll(7, 1)


def compressed(weight, plan, x):
    seen = InputStatistics(weight.shape[1])
    for part in x.split(128):
        seen.add(part)
    result = compress_weight(weight, plan, seen)
    arrays = [seen.hessian, result.quantized.codes, result.quantized.scales, result.quantized.zeros, result.mask]
    return [array.clone() for array in arrays if array is not None] + [torch.tensor(result.error, dtype=torch.float64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("plan", PLANS)
def test_a_layer_is_the_same_bytes(plan, shape, threads):
    weight, x, expected = layer(*shape), inputs(shape[1]), None
    for count in THREADS:
        threads(count)
        arrays = compressed(weight, PLANS[plan], x)
        assert torch.get_num_threads() == count
        expected = expected or arrays
        assert all(torch.equal(*pair) for pair in zip(arrays, expected, strict=True)), count


def test_a_factor_of_several_panels_is_the_factor():
    x = inputs(700, 900)
    hessian = (x.T @ x / len(x)).double()
    damped = hessian + 0.01 * hessian.diagonal().mean() * torch.eye(700)
    factor = upper_factor(hessian.float())
    assert torch.equal(factor, factor.triu())
    torch.testing.assert_close(factor.double() @ factor.double().T, damped, rtol=1e-4, atol=1e-4)


def test_items_are_computed_side_by_side_and_given_in_order(threads):
    threads(3)
    meeting = threading.Barrier(3, timeout=60)  # broken unless three come at a time

    def meet(item):
        meeting.wait()
        return item, torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        assert list(in_order(meet, range(6))) == [(item, 1, False) for item in range(6)]
    assert torch.get_num_threads() == 3


def test_no_more_is_taken_than_is_computed_at_once(threads):
    threads(2)
    taken = []
    results = in_order(lambda item: item, (taken.append(item) or item for item in range(10)))
    assert next(results) == 0 and len(taken) == 2
    results.close()
    assert torch.get_num_threads() == 2


def test_work_inside_work_stays_in_its_thread(threads):
    threads(2)

    def names(_):
        return {threading.current_thread().name for _ in in_order(lambda _: None, range(4))} | set(
            in_order(lambda _: threading.current_thread().name, range(4))
        )

    assert all(len(names_of_thread) == 1 for names_of_thread in in_order(names, range(4)))


def test_errors_come_through_and_threads_come_back(threads):
    threads(2)

    def fail(item):
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"), one_thread():
        run_all(fail, range(3))
    assert torch.get_num_threads() == 2


def test_panels_cover_all_rows():
    assert panels(5, 2) == [slice(0, 2), slice(2, 4), slice(4, 5)] and panels(0) == []
