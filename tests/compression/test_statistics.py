import pytest
import torch

from tests.compression.layers import calibration
from tilepress.compression import InputStatistics
from tilepress.compression import statistics as module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norms_and_hessian_are_means_over_all_inputs(dtype, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_TOKENS", 100)
    x = calibration(24).to(dtype)
    statistics = InputStatistics(24)
    statistics.add(x[:12].view(3, 4, 24))
    statistics.add(x[12:])
    statistics.add(x[:0])
    wide = x.double()
    assert statistics.count == len(x)
    torch.testing.assert_close(statistics.hessian, (wide.T @ wide / len(x)).float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(statistics.norms, wide.square().mean(0).sqrt().float())


def test_a_vector_counts_as_one():
    statistics = InputStatistics(3)
    statistics.add(torch.tensor([1.0, 2.0, -2.0]))
    assert statistics.count == 1
    assert statistics.norms.tolist() == [1, 2, 2]
    assert statistics.hessian.tolist() == [[1, 2, -2], [2, 4, -4], [-2, -4, 4]]


def test_many_small_additions_lose_nothing_that_matters():
    x = calibration(8, tokens=3000)
    statistics = InputStatistics(8)
    for vector in x:
        statistics.add(vector)
    torch.testing.assert_close(statistics.hessian, x.T @ x / len(x), rtol=1e-4, atol=1e-4)


def test_norms_alone_take_no_square_of_memory():
    statistics = InputStatistics(1 << 20, hessian=False)
    statistics.add(torch.ones(2, 1 << 20))
    assert statistics.norms.shape == (1 << 20,)
    with pytest.raises(ValueError, match=r"keep norms only: gather them with InputStatistics\(inputs, hessian=True\)"):
        _ = statistics.hessian


def test_gathering_in_inference_mode_may_go_on_outside():
    with torch.inference_mode():
        statistics = InputStatistics(4)
        statistics.add(torch.ones(2, 4))
    statistics.add(torch.ones(2, 4, requires_grad=True))
    assert statistics.hessian.tolist() == [[1.0] * 4] * 4
    assert not statistics.hessian.requires_grad


@pytest.mark.parametrize(
    ("x", "error", "text"),
    [
        (torch.ones(2, 5), ValueError, r"takes \[..., 4\], not \[2, 5\]"),
        (torch.tensor(1.0), ValueError, r"takes \[..., 4\], not \[\]"),
        (torch.ones(2, 4, dtype=torch.int64), TypeError, "are floats, not torch.int64"),
        (torch.tensor([1, torch.nan, torch.inf, 0]), ValueError, "must be finite: 2 are not"),
        (torch.full((4,), 1e30), ValueError, "too large: their squares do not fit float32"),
    ],
)
def test_inputs_that_cannot_be_counted_change_nothing(x, error, text):
    statistics = InputStatistics(4)
    statistics.add(torch.ones(1, 4))
    with pytest.raises(error, match=text):
        statistics.add(x)
    assert statistics.count == 1
    assert statistics.norms.tolist() == [1.0] * 4
    assert statistics.hessian.tolist() == [[1.0] * 4] * 4


def test_empty_statistics_say_so():
    for name in ("norms", "hessian"):
        with pytest.raises(ValueError, match="no calibration inputs were added"):
            getattr(InputStatistics(4), name)
    assert repr(InputStatistics(4, hessian=False)) == "InputStatistics(4 inputs, 0 vectors, norms)"


@pytest.mark.parametrize("inputs", [0, -1, 2.0, True])
def test_a_layer_has_inputs(inputs):
    with pytest.raises(ValueError, match="at least one input"):
        InputStatistics(inputs)
