import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compression.layers import calibration, layer, statistics
from tests.tiles.cases import FORMATS, table_format
from tilepress.compression import InputStatistics, WeightPlan, compress_weight, decompress_weight, grid, output_error
from tilepress.compression import weight as compressing
from tilepress.formats import decode, dequantize, parse_weight, weight_names
from tilepress.formats.zero_points import whole

METHODS = list(itertools.product(("magnitude", "wanda", "sparsegpt"), ("rtn", "gptq", "learned-clip")))


def plans(format, density):
    """Every way of bringing a layer into a format."""
    for prune, quantize in METHODS:
        if quantize != "learned-clip" or format.scaling is not None:
            yield WeightPlan(format, density, prune, quantize=quantize)


def true_error(weight, values, x):
    """Lost power of the layer's outputs on the calibration inputs themselves, float64."""
    lost, whole = (x.double() @ (w.double().T) for w in (values - weight, weight))
    return float(lost.square().sum() / whole.square().sum())


def condition(weight, x):
    """How many times larger the terms of tr(W H Wᵀ) are than their sum, which cancels where outputs are near zero: so
    many roundings of float32, the Hessian's type, are in it."""
    exact = (x.double(), weight.double())
    terms, power = (float((a @ b.T).square().sum()) for a, b in (map(torch.abs, exact), exact))
    return terms / power if power else math.inf if terms else 0.0


@pytest.mark.parametrize("name", weight_names())
def test_every_method_serves_every_format(name):
    format, weight, x = parse_weight(name), layer(6, 72), calibration(72)
    seen = InputStatistics(72)
    seen.add(x)
    for plan in plans(format, 0.5):
        got = compress_weight(weight, plan, seen)
        values = dequantize(got.quantized, format)
        assert bool(values.isfinite().all())
        assert not bool(values[~got.mask].any())
        assert int(got.mask.sum()) == 6 * 36
        assert got.error == pytest.approx(true_error(weight, values, x), rel=1e-3), plan


@pytest.mark.parametrize("name", ["uint4:g32", "mxfp4", "bf16"])
def test_some_rows_at_a_time_is_all_at_once(name, monkeypatch):
    format, weight, seen = parse_weight(name), layer(24, 72).bfloat16(), InputStatistics(72)
    seen.add(calibration(72))
    for plan in (WeightPlan(format), WeightPlan(format, 0.5, prune_scope="layer"), *plans(format, 0.5)):
        whole = compress_weight(weight.float(), plan, seen)
        with monkeypatch.context() as patch:
            patch.setattr(grid, "CHUNK_WEIGHTS", 5 * 72)
            parts = compress_weight(weight, plan, seen)
        for mine, other in zip(arrays(parts), arrays(whole), strict=True):
            assert mine is other is None or torch.equal(mine, other), plan
        assert parts.error == pytest.approx(whole.error, rel=1e-6)


def arrays(result):
    return (*vars(result.quantized).values(), result.mask)


@settings(max_examples=60)
@given(
    format=st.sampled_from(FORMATS),
    method=st.sampled_from(METHODS),
    neurons=st.integers(1, 9),
    inputs=st.integers(1, 80),
    density=st.sampled_from([0.0, 0.1, 0.37, 0.5, 0.9, 1.0]),
    tokens=st.integers(1, 100),
    seed=st.integers(0, 99),
)
def test_what_holds_of_every_result(format, method, neurons, inputs, density, tokens, seed):
    prune, quantize = method
    if format.scaling is None and quantize == "learned-clip":
        quantize = "gptq"
    weight, seen = layer(neurons, inputs, seed), InputStatistics(inputs)
    weight[:, 0] = 0.05
    x = calibration(inputs, tokens, seed)
    x[:, 1:2] = 0
    seen.add(x)
    got = compress_weight(weight, WeightPlan(format, density, prune, quantize=quantize), seen)
    codes, scales, zeros = got.quantized.codes, got.quantized.scales, got.quantized.zeros
    groups = (neurons, format.scaling.groups(inputs)) if format.scaling else None
    assert codes.shape == weight.shape and codes.dtype == (torch.int16 if format.element.bits == 16 else torch.uint8)
    assert bool(decode(codes, format.element).isfinite().all())
    assert scales is None if groups is None else tuple(scales.shape) == groups
    assert tuple(zeros.shape) == groups if format.has_zero_point else zeros is None
    assert (got.mask is None) == (density == 1)
    if got.mask is not None:
        check_mask(got.mask, prune, density)
        assert not bool(decompress_weight(got, format)[~got.mask].any())
        if zeros is not None:  # then zero is a code, and dropped weights have it
            assert whole(zeros, format.element) and not bool(dequantize(got.quantized, format)[~got.mask].any())
    values = decompress_weight(got, format)
    expected, uncertainty = true_error(weight, values, x), condition(values - weight, x) + condition(weight, x)
    assert got.error == pytest.approx(expected, rel=1e-5 + 2.0**-20 * uncertainty, abs=1e-6)


def check_mask(mask, prune, density):
    neurons, inputs = mask.shape
    if prune == "sparsegpt":
        assert int(mask.sum()) == round(density * neurons * inputs)
    else:
        assert mask.sum(1).tolist() == [round(density * inputs)] * neurons


@pytest.mark.parametrize("density", [0.3, 0.5, 0.7])
def test_pruning_improves_from_magnitude_to_wanda_to_sparsegpt(density):
    weight, seen = layer(48, 192), statistics(192)
    errors = [
        compress_weight(weight, WeightPlan(parse_weight("bf16"), density, prune), seen).error
        for prune in ("sparsegpt", "wanda", "magnitude")
    ]
    assert errors[0] < 0.9 * errors[1]
    assert errors[1] < 0.9 * errors[2]


@pytest.mark.parametrize("name", ["int4:g32", "int3:g32", "uint4:g64", "mxfp4", "nf4:g64", "int8:row"])
def test_quantising_improves_from_plain_to_clipped_to_gptq(name):
    weight, seen, format = layer(48, 192), statistics(192), parse_weight(name)
    plain, clipped, learned, gptq = (
        compress_weight(weight, plan, seen).error
        for plan in (
            WeightPlan(format, clip_search=False),
            WeightPlan(format),
            WeightPlan(format, quantize="learned-clip"),
            WeightPlan(format, quantize="gptq"),
        )
    )
    assert gptq < 0.8 * learned
    assert learned < clipped < plain


@pytest.mark.parametrize("prune", ["magnitude", "wanda"])
def test_gptq_makes_up_for_weights_that_were_dropped(prune):
    weight, seen, format = layer(32, 128), statistics(128), parse_weight("int8:g32")
    dropped, compensated = (
        compress_weight(weight, WeightPlan(format, 0.5, prune, quantize=quantize), seen) for quantize in ("rtn", "gptq")
    )
    assert torch.equal(dropped.mask, compensated.mask)
    assert compensated.error < 0.8 * dropped.error


def test_one_pass_over_both_is_better_than_one_after_the_other():
    weight, seen, format = layer(32, 128), statistics(128), parse_weight("int3:g32")
    joint = compress_weight(weight, WeightPlan(format, 0.5, "sparsegpt", quantize="gptq"), seen)
    apart = compress_weight(weight, WeightPlan(format, 0.5, "sparsegpt", quantize="rtn"), seen)
    assert joint.error < 0.95 * apart.error


def test_without_statistics_the_error_is_of_the_weights():
    weight, format = layer(8, 64), parse_weight("int4:g32")
    got = compress_weight(weight, WeightPlan(format, 0.5))
    lost = decompress_weight(got, format) - weight
    assert got.error == pytest.approx(float(lost.square().sum() / weight.square().sum()), rel=1e-5)


def test_with_norms_alone_the_error_is_weighed_by_them():
    weight, format, seen = layer(8, 64), parse_weight("int4:g32"), statistics(64, hessian=False)
    got = compress_weight(weight, WeightPlan(format, 0.5, "wanda"), seen)
    lost, whole = (w * seen.norms for w in (decompress_weight(got, format) - weight, weight))
    assert got.error == pytest.approx(float(lost.square().sum() / whole.square().sum()), rel=1e-5)


@pytest.mark.parametrize("chunk", [1, 30, 64, 100])
def test_the_error_is_summed_block_by_block(chunk, monkeypatch):
    monkeypatch.setattr(compressing, "CHUNK_INPUTS", chunk)
    weight, other, x = layer(8, 64), layer(8, 64, seed=2), calibration(64)
    seen = InputStatistics(64)
    seen.add(x)
    assert output_error(weight, other, seen) == pytest.approx(true_error(weight, other, x), rel=1e-4)


def test_errors_of_silent_layers():
    nothing, seen = torch.zeros(2, 4), InputStatistics(4)
    seen.add(torch.tensor([1.0, 0, 0, 0]))
    assert output_error(nothing, nothing) == 0
    assert output_error(nothing, torch.ones(2, 4)) == math.inf
    assert output_error(torch.tensor([[0.0, 1, 1, 1]]), torch.tensor([[0.0, 2, 2, 2]]), seen) == 0


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_layers_at_the_edge(method):
    """Constant weights, inputs that are always zero, and one calibration vector only: a Hessian of rank one."""
    prune, quantize = method
    format, seen = parse_weight("uint4:g32"), InputStatistics(40)
    seen.add(torch.cat([torch.zeros(10), torch.ones(30)]))
    for weight in (torch.full((3, 40), 0.25), torch.zeros(3, 40), torch.full((3, 40), -1.0)):
        for density in (0.0, 0.5, 1.0):
            got = compress_weight(weight, WeightPlan(format, density, prune, quantize=quantize), seen)
            assert math.isfinite(got.error)
            assert bool(dequantize(got.quantized, format).isfinite().all())
            assert density or not bool(dequantize(got.quantized, format).any())


@pytest.mark.parametrize("quantize", ["rtn", "gptq", "learned-clip"])
def test_a_table_without_zero_leaves_zeros_to_the_mask(quantize):
    weight, format = layer(8, 64), table_format(1, 32)
    plan = WeightPlan(format, 0.5, quantize=quantize)
    got = compress_weight(weight, plan, statistics(64))
    assert not bool(decompress_weight(got, format)[~got.mask].any())
    assert bool(decompress_weight(got, format)[got.mask].all())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_results_are_repeatable_and_halves_are_read(method):
    prune, quantize = method
    plan, seen = WeightPlan(parse_weight("int4:g32"), 0.5, prune, quantize=quantize), statistics(64)
    weight = layer(8, 64).to(torch.bfloat16)
    one, two = compress_weight(weight, plan, seen), compress_weight(weight.to(torch.float32), plan, seen)
    assert torch.equal(one.quantized.codes, two.quantized.codes)
    assert torch.equal(one.quantized.scales, two.quantized.scales)
    assert torch.equal(one.mask, two.mask) and one.error == two.error


def test_the_weight_is_left_alone():
    weight, seen = layer(8, 64), statistics(64)
    before, hessian = weight.clone(), seen.hessian.clone()
    for plan in plans(parse_weight("int4:g32"), 0.5):
        compress_weight(weight, plan, seen)
    assert torch.equal(weight, before) and torch.equal(seen.hessian, hessian)


@pytest.mark.parametrize(
    ("weight", "error", "text"),
    [
        (torch.ones(4), ValueError, r"\[neurons, inputs\], not \[4\]"),
        (torch.ones(0, 4), ValueError, "an empty matrix"),
        (torch.ones(2, 4, dtype=torch.float64), TypeError, "not torch.float64"),
        (torch.tensor([[1.0, torch.inf, torch.nan]]), ValueError, "weights must be finite: 2 are not"),
    ],
)
def test_matrices_that_are_no_weights_are_refused(weight, error, text):
    with pytest.raises(error, match=text):
        compress_weight(weight, WeightPlan(parse_weight("int4:g32")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_gpu_gives_the_same_quality_and_keeps_the_result(method):
    prune, quantize = method
    plan, seen, weight = (
        WeightPlan(parse_weight("uint4:g32"), 0.5, prune, quantize=quantize),
        statistics(64),
        layer(8, 64),
    )
    there, here = compress_weight(weight.cuda(), plan, seen), compress_weight(weight, plan, seen)
    assert there.quantized.codes.is_cuda and there.mask.is_cuda
    assert there.error == pytest.approx(here.error, rel=0.05)
