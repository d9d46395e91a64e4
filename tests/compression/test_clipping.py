import pytest
import torch

from tests.compression.layers import layer
from tests.tiles.cases import FORMATS
from tilepress.compression import clipping, magnitude_mask, rtn
from tilepress.compression.grid import grouped, spanning
from tilepress.formats import dequantize, parse_weight, quantize


def cost(weight, quantized, format, importance):
    """Weighted squared error of each group [neurons, groups], float64."""
    error = (dequantize(quantized, format) - weight).double().square() * importance
    return grouped(error, format).sum(-1)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_no_group_is_worse_than_by_plain_rounding(format):
    weight, importance = layer(6, 136), layer(1, 136, seed=5)[0].square()
    weight[0] = 1.0
    searched = rtn(weight, format, importance=importance)
    searched_cost = cost(weight, searched, format, importance)
    plain_cost = cost(weight, quantize(weight, format), format, importance)
    assert bool((searched_cost <= plain_cost * (1 + 1e-5)).all())


@pytest.mark.parametrize("name", ["int3:g32", "uint4:g16", "mxfp4", "nf4:g64", "e4m3:row"])
def test_the_search_finds_the_best_of_its_factors(name):
    format, weight, importance = parse_weight(name), layer(4, 72), layer(1, 72, seed=5)[0].square()
    groups = grouped(weight, format)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    factors = clipping.E8M0_FACTORS if format.scaling.type == "e8m0" else clipping.FACTORS
    costs = [
        (
            (spanning(low * f, high * f, format).round(groups) - groups).double().square() * grouped(importance, format)
        ).sum(-1)
        for f in factors
    ]
    best = torch.stack(costs).amin(0)
    searched = cost(weight, rtn(weight, format, importance=importance), format, importance)
    torch.testing.assert_close(searched, best, rtol=1e-5, atol=0)
    assert bool((best < costs[0]).any())


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_without_the_search_it_is_plain_quantisation(format):
    weight = layer(6, 136)
    ours, plain = rtn(weight, format, clip_search=False), quantize(weight, format)
    for name in ("codes", "scales", "zeros"):
        one, other = getattr(ours, name), getattr(plain, name)
        assert one is other if other is None else torch.equal(one, other)


@pytest.mark.parametrize("name", ["uint4:g32", "uint3:g32", "uint5:g32"])
def test_the_search_keeps_what_was_quantised_before(name):
    """Weights d · q + m are on a grid already, to half a step of its zero point, and no cut of the range is better."""
    format = parse_weight(name)
    choice = torch.Generator().manual_seed(0)
    codes = torch.randint(format.element.codes, (20, 4, 32), generator=choice)
    codes[..., 0], codes[..., 31] = 0, format.element.codes - 1
    scales = (0.001 + torch.rand(20, 4, generator=choice) / 50).half()
    low = -torch.rand(20, 4, generator=choice) * format.element.max * scales.float()
    weight = (codes * scales[..., None].float() + low[..., None]).flatten(1)
    got = rtn(weight, format)
    assert torch.equal(got.codes, codes.flatten(1).to(torch.uint8)) and torch.equal(got.scales, scales)


def test_chunks_of_rows_do_not_show(monkeypatch):
    weight, format = layer(9, 100), parse_weight("uint4:g32")
    whole = rtn(weight, format)
    monkeypatch.setattr(clipping, "CHUNK_WEIGHTS", 1)
    parts = rtn(weight, format)
    assert torch.equal(whole.codes, parts.codes) and torch.equal(whole.scales, parts.scales)


def test_dropped_weights_do_not_count():
    """A table without zero: what it makes of dropped weights must not move the scale of those kept."""
    format = next(format for format in FORMATS if str(format).startswith("lut1:"))
    weight = layer(4, 64)
    mask = magnitude_mask(weight, 0.5)
    pruned = weight.masked_fill(~mask, 0)
    got = dequantize(rtn(pruned, format, mask=mask), format)
    blind = dequantize(rtn(pruned, format), format)
    assert float(((got - weight) * mask).square().sum()) < float(((blind - weight) * mask).square().sum())


def test_inputs_that_matter_are_served_first():
    format, weight = parse_weight("int2:g32"), layer(8, 32)
    importance = torch.ones(32)
    importance[3] = 1000.0
    error = dequantize(rtn(weight, format, importance=importance), format) - weight
    even = dequantize(rtn(weight, format), format) - weight
    assert float(error[:, 3].square().sum()) < 0.5 * float(even[:, 3].square().sum())


@pytest.mark.parametrize("scale", [1e30, 1e38, 1e-30, 1e-44])
@pytest.mark.parametrize("name", ["int4:g32", "uint4:g32", "mxfp4", "nf4:g64:fp32"])
def test_extreme_weights_stay_finite(name, scale):
    format = parse_weight(name)
    assert bool(dequantize(rtn(layer(3, 64) * scale, format), format).isfinite().all())
