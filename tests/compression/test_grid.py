import pytest
import torch

from tests.compression.layers import layer
from tests.tiles.cases import FORMATS
from tilepress.compression.grid import grouped, nearest_values, spanning, ungrouped, value_range
from tilepress.formats import decode, encode, quantize

SCALED = [format for format in FORMATS if format.scaling is not None]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("inputs", [1, 40, 256])
@pytest.mark.parametrize("format", SCALED, ids=str)
def test_the_whole_range_gives_the_grid_of_plain_quantisation(format, inputs, sparse):
    weight = layer(5, inputs)
    weight[1] = weight[1].abs()
    weight[2] = 0
    groups = grouped(weight, format)
    grid = spanning(groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True), format, sparse=sparse)
    plain = quantize(weight, format, sparse=sparse)
    assert torch.equal(grid.scales.squeeze(-1), plain.scales)
    assert plain.zeros is None if grid.zeros is None else torch.equal(grid.zeros.squeeze(-1), plain.zeros)
    assert torch.equal(ungrouped(grid.encode(groups), inputs), plain.codes)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_rounding_is_encoding_and_decoding(format):
    element = format.element
    values = (
        decode(torch.arange(min(element.codes, 256)).to(torch.uint8), element) if element.bits <= 8 else layer(1, 9)
    )
    values = values[values.isfinite()].sort().values
    midpoints = (values[1:] + values[:-1]) / 2
    x = torch.cat([values, midpoints, midpoints.nextafter(values[1:]), 1.5 * values, layer(1, 200)[0], values * 0])
    assert torch.equal(nearest_values(x, element), decode(encode(x, element), element))
    low, high = value_range(element)
    assert [low, high] == decode(encode(torch.tensor([-torch.inf, torch.inf]), element), element).tolist()


@pytest.mark.parametrize("format", SCALED, ids=str)
def test_a_grid_decodes_what_it_encodes(format):
    groups = grouped(layer(3, 100), format)
    grid = spanning(0.7 * groups.amin(-1, keepdim=True), 0.7 * groups.amax(-1, keepdim=True), format)
    values = decode(grid.encode(groups), format.element)
    values = values if grid.zero is None else values - grid.zero
    assert torch.equal(grid.round(groups), values * grid.step)
    assert torch.equal(grid.round(grid.round(groups)), grid.round(groups))
