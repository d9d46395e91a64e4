import pytest
import torch

from tests.compression.layers import layer, statistics
from tilepress.compression import learned, learned_clip, magnitude_mask, output_error, rtn
from tilepress.formats import dequantize, parse_weight

NAMES = ["int4:g32", "int3:row", "uint4:g64", "uint2:g32", "mxfp4", "nf4:g64", "e4m3:g32"]


def row_errors(values, weight, hessian):
    lost = (values - weight).double()
    return ((lost @ hessian.double()) * lost).sum(1)


@pytest.mark.parametrize("name", NAMES)
def test_training_lowers_the_output_error_and_worsens_no_row(name):
    format, weight, seen = parse_weight(name), layer(24, 96), statistics(96)
    start = dequantize(rtn(weight, format, importance=seen.hessian.diagonal()), format)
    trained = dequantize(learned_clip(weight, format, seen.hessian), format)
    before, after = (row_errors(values, weight, seen.hessian) for values in (start, trained))
    assert bool((after <= before * (1 + 1e-4)).all())
    assert output_error(weight, trained, seen) < 0.995 * output_error(weight, start, seen)


@pytest.mark.parametrize("sign", [1, -1])
def test_each_end_of_a_range_can_be_cut(sign):
    """An outlier, above or below, of an input that hardly matters."""
    format, weight, hessian = parse_weight("uint3:g32"), layer(4, 32), torch.eye(32)
    weight[:, 0], hessian[0, 0] = sign, 1e-4
    plain = dequantize(rtn(weight, format, clip_search=False), format)
    trained = dequantize(learned_clip(weight, format, hessian, clip_search=False), format)
    assert bool((trained[:, 0].abs() < 0.8).all())
    assert bool((row_errors(trained, weight, hessian) < 0.7 * row_errors(plain, weight, hessian)).all())


def test_the_target_is_what_is_approached():
    """Weights moved by pruning are still trained for the outputs of those that were."""
    format, weight, seen = parse_weight("int3:g32"), layer(16, 64), statistics(64)
    mask = magnitude_mask(weight, 0.6)
    pruned = weight.masked_fill(~mask, 0)
    blind = learned_clip(pruned, format, seen.hessian, mask=mask)
    aimed = learned_clip(pruned, format, seen.hessian, target=weight, mask=mask)
    errors = [output_error(weight, dequantize(q, format), seen) for q in (aimed, blind)]
    assert errors[0] < errors[1]
    assert not bool(dequantize(aimed, format)[~mask].any())


def test_it_is_deterministic_and_chunks_do_not_show(monkeypatch):
    format, weight, seen = parse_weight("uint4:g32"), layer(8, 64), statistics(64)
    one = learned_clip(weight, format, seen.hessian)
    assert torch.equal(one.codes, learned_clip(weight, format, seen.hessian).codes)
    monkeypatch.setattr(learned, "CHUNK_WEIGHTS", 64 * 3)
    parts = learned_clip(weight, format, seen.hessian)
    torch.testing.assert_close(dequantize(parts, format), dequantize(one, format), rtol=0.1, atol=0.01)


def test_small_inputs_are_learned_from_as_well_as_large_ones():
    format, weight, hessian = parse_weight("uint3:g32"), layer(4, 64), statistics(64).hessian
    one, small = (learned_clip(weight, format, hessian * size) for size in (1.0, 2.0**-40))
    assert torch.equal(one.codes, small.codes)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_trains_where_gradients_are_off(mode):
    format, seen = parse_weight("int4:g32"), statistics(64)
    outside = learned_clip(layer(4, 64), format, seen.hessian)
    with mode():
        inside = learned_clip(layer(4, 64), format, seen.hessian)
    assert torch.equal(inside.codes, outside.codes)
