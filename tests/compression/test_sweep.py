"""The blocked sweep against the textbook loop."""

import pytest
import torch

from tests.compression.layers import layer, statistics
from tests.tiles.cases import table_format
from tilepress.compression import magnitude_mask, reference, sweep
from tilepress.compression.hessian import damped, upper_factor
from tilepress.formats import dequantize, parse_weight


def both(weight, hessian, monkeypatch, block, **options):
    monkeypatch.setattr(sweep, "BLOCK", block)
    fast = sweep.sweep(weight, upper_factor(hessian), **options)
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
