"""The blocked sweep against the textbook loop."""

import pytest
import torch

from tests.compression.layers import layer, statistics
from tests.tiles.cases import table_format
from tilepress.compression import magnitude_mask, reference, sweep
from tilepress.compression.hessian import activation_order, damped, upper_factor
from tilepress.compression.weight import output_error
from tilepress.formats import dequantize, parse_weight


def both(weight, hessian, monkeypatch, block, **options):
    monkeypatch.setattr(sweep, "BLOCK", block)
    fast = sweep.sweep(weight, upper_factor(hessian, options.get("order")), **options)
    values, mask = reference.sweep(weight, damped(hessian), **options)
    return fast, values.to(torch.float32), mask


FORMATS = [None, "int4:g16", "int3:row", "uint4:g32", "uint2:g48", "mxfp4", "nf4:g64", "bf8", "e4m3:g16", "lut3"]


@pytest.mark.parametrize("block", [16, 128])
@pytest.mark.parametrize("keep", [None, 0.5, 0.3, "mask"], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_the_blocked_sweep_is_the_textbook_loop(name, keep, block, monkeypatch):
    weight, hessian = layer(7, 72), statistics(72).hessian
    format = table_format(3, 16) if name == "lut3" else None if name is None else parse_weight(name)
    options = {"keep": magnitude_mask(weight, 0.5) if keep == "mask" else keep, "format": format}
    fast, values, mask = both(weight, hessian, monkeypatch, block, **options)
    assert fast.mask is None if keep is None else torch.equal(fast.mask, mask)
    torch.testing.assert_close(fast.values, values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("keep", [None, 0.5, "mask"], ids=str)
@pytest.mark.parametrize("name", [None, "int4:g16", "uint4:g32", "uint2:g48", "mxfp4", "bf8", "e4m3:g16"])
def test_columns_in_another_order(name, keep, monkeypatch):
    weight, hessian = layer(7, 72), statistics(72).hessian
    options = {"keep": magnitude_mask(weight, 0.5) if keep == "mask" else keep, "format": name and parse_weight(name)}
    fast, values, mask = both(weight, hessian, monkeypatch, 16, **options, order=activation_order(hessian))
    assert fast.mask is None if keep is None else torch.equal(fast.mask, mask)
    torch.testing.assert_close(fast.values, values, rtol=1e-4, atol=1e-6)
    if name is not None:
        assert torch.equal(fast.values, dequantize(fast.quantized, options["format"]).mul(1 if keep is None else mask))


def test_the_order_of_the_inputs_is_an_order_too():
    """Without groups of weights nothing is chosen beforehand, and the result is the plain sweep's to the bit."""
    weight, hessian, format = layer(9, 80), statistics(80).hessian, parse_weight("bf8")
    order = torch.arange(80)
    one, other = (sweep.sweep(weight, upper_factor(hessian, o), format=format, order=o) for o in (None, order))
    assert torch.equal(one.values, other.values)


def test_static_groups_have_the_grids_of_the_weights_as_they_came():
    weight, hessian, format = layer(8, 64), statistics(64).hessian, parse_weight("int3:g16")
    order = activation_order(hessian)
    swept = sweep.sweep(weight, upper_factor(hessian, order), format=format, order=order, clip_search=False)
    assert torch.equal(swept.quantized.scales, weight.view(8, 4, 16).abs().amax(-1).div(3).to(torch.bfloat16))


def test_the_largest_activations_first_lose_less():
    weight, gathered, format = layer(64, 128), statistics(128), parse_weight("int3:g32")
    errors = {}
    for name, order in (("input", None), ("activation", activation_order(gathered.hessian))):
        swept = sweep.sweep(weight, upper_factor(gathered.hessian, order), format=format, order=order)
        errors[name] = output_error(weight, swept.values, gathered)
    assert errors["activation"] < 0.95 * errors["input"]


def test_inputs_of_falling_power():
    assert activation_order(torch.diag(torch.tensor([1.0, 3, 0, 3]))).tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize("name", ["bf16", "fp16", "int8:row"])
def test_fine_formats_differ_only_where_float32_cannot_tell_a_tie(name, monkeypatch):
    """One weight rounded the other way changes what follows in its row, and no other row."""
    weight, hessian = layer(40, 72), statistics(72).hessian
    fast, values, _ = both(weight, hessian, monkeypatch, 16, format=parse_weight(name))
    same = torch.isclose(fast.values, values, rtol=1e-5).all(1)
    assert int(same.sum()) >= 36
    loss, expected = (float((((w - weight) @ hessian) * (w - weight)).sum()) for w in (fast.values, values))
    assert loss == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("neurons", "inputs"), [(1, 1), (1, 40), (5, 1), (3, 33)])
def test_small_and_ragged_layers(neurons, inputs, monkeypatch):
    weight, hessian = layer(neurons, inputs), statistics(inputs).hessian
    fast, values, mask = both(weight, hessian, monkeypatch, 16, keep=0.6, format=parse_weight("int4:g32"))
    torch.testing.assert_close(fast.values, values)
    assert torch.equal(fast.mask, mask)


@pytest.mark.parametrize("name", ["int4:g16", "uint3:g32", "mxfp6", "bf8", "fp16"])
def test_the_values_are_what_the_codes_stand_for(name):
    format = parse_weight(name)
    swept = sweep.sweep(layer(9, 80), upper_factor(statistics(80).hessian), keep=0.5, format=format)
    assert torch.equal(swept.values, dequantize(swept.quantized, format))


def test_grids_come_from_the_weights_as_updated():
    """A group that is entered late has other scales than the weights it began with."""
    weight, factor, format = layer(8, 64), upper_factor(statistics(64).hessian), parse_weight("int3:g16")
    scales = sweep.sweep(weight, factor, format=format, clip_search=False).quantized.scales
    plain = weight.view(8, 4, 16).abs().amax(-1).div(3).to(torch.bfloat16)
    assert torch.equal(scales[:, 0], plain[:, 0])
    assert not torch.equal(scales[:, 1:], plain[:, 1:])


@pytest.mark.parametrize(
    ("name", "inputs", "lengths"),
    [
        (None, 300, [128, 128, 44]),
        ("int4:row", 300, [128, 128, 44]),
        ("int4:g32", 300, [128, 128, 44]),
        ("int4:g48", 200, [96, 96, 8]),
        ("int4:g256", 520, [128, 128, 128, 128, 8]),
        ("int4:g144", 300, [128, 16, 128, 16, 12]),
    ],
)
def test_blocks_hold_whole_groups_or_lie_in_one(name, inputs, lengths):
    blocks = sweep.column_blocks(inputs, name and parse_weight(name))
    assert [len(block) for block in blocks] == lengths
    assert [column for block in blocks for column in block] == list(range(inputs))
