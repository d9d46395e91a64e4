"""Weights that come on a grid keep it: against the plain search, and to the bit where a format holds the grid."""

import numpy as np
import pytest
import torch

from tests.compression.layers import layer, statistics
from tilepress.compression import WeightPlan, compress_weight, decompress_weight
from tilepress.compression.reference import grid_of
from tilepress.compression.source_grid import find_grid
from tilepress.formats import dequantize, parse_weight

NUMBERS = np.random.default_rng(0)
SHAPE = (24, 3, 32)


def halves(low, high, shape=SHAPE[:2]):
    """fp16 numbers as float32."""
    return torch.from_numpy(NUMBERS.uniform(low, high, shape).astype(np.float16).astype(np.float32))[..., None]


def codes(low, high, shape=SHAPE):
    return torch.from_numpy(NUMBERS.integers(low, high + 1, shape)).to(torch.float32)


def q4_0():
    """d · (q - 8), where d may be negative."""
    return (codes(0, 15) - 8) * halves(-0.1, 0.1)


def q4_1():
    """d · q + m, the smallest weight below zero."""
    return codes(0, 15) * halves(0.01, 0.02) - halves(0.01, 0.15)


def q8_0():
    return codes(-127, 127) * halves(0.001, 0.01)


def matrix(groups):
    return groups.reshape(SHAPE[0], -1)


@pytest.mark.parametrize(
    ("source", "format", "most"),
    [(q4_0, "uint4:g32", 0), (q8_0, "int8:g32:fp16", 0), (q4_1, "uint4:g32", 0.0325), (q4_0, "uint8:g32", 0)],
)
def test_grids_of_gguf_are_held(source, format, most):
    weight = matrix(source())
    grid = find_grid(weight, parse_weight(format))
    back = dequantize(grid.quantized, parse_weight(format))
    assert grid.error <= most and (most or torch.equal(back, weight))
    steps = grid.quantized.scales.float().repeat_interleave(32, 1)
    assert float(((back - weight) / steps).abs().max()) == pytest.approx(grid.error, abs=1e-5)


def test_codes_and_steps_are_the_files_own():
    d, q, m = halves(0.01, 0.02), codes(0, 15), halves(0.01, 0.15)
    q[:, :, 0], q[:, :, 1] = 0, 15
    grid = find_grid(matrix(q * d - m), parse_weight("uint4:g32"))
    assert torch.equal(grid.quantized.codes.float(), matrix(q))
    assert torch.equal(grid.quantized.scales.float(), d.squeeze(-1))


@pytest.mark.parametrize("format", ["uint4:g32", "int4:g32:fp16", "int8:g32:fp16", "uint3:g32"])
def test_it_is_the_plain_search(format):
    """Group after group; those that are on no grid are layers of their own, which are not taken."""
    format = parse_weight(format)
    few = codes(0, 2) * halves(0.5, 1) + halves(-1, 1)
    groups = torch.cat(
        [q4_0()[:4], q4_1()[:4], q8_0()[:4], few[:4], 0 * few[:1], 0 * few[:1] - 0.3, layer(96, 32)[None, :3]]
    )
    for group in groups.flatten(0, 1):
        plain, grid = grid_of(group.tolist(), format.element), find_grid(group[None], format)
        if plain is None:
            assert grid is None
        elif grid is not None:
            step, values = plain
            decoded = torch.tensor(values, dtype=torch.float32)
            assert float(grid.quantized.scales) == pytest.approx(step, rel=2**-11)
            stored = (dequantize(grid.quantized, format) / grid.quantized.scales.float()).flatten()
            assert torch.allclose(stored - stored[0], decoded - decoded[0], atol=1e-3)


@pytest.mark.parametrize("format", ["uint4:g32", "int8:g32", "int4:row", "mxfp4", "nf4:g64", "e4m3"])
def test_other_weights_lie_on_none(format):
    assert find_grid(layer(24, 96), parse_weight(format)) is None
    weight = matrix(q4_1())
    weight[-1, -1] += 0.3 * 0.01  # one weight between two codes, past the rows that are tried first
    assert find_grid(weight, parse_weight("uint4:g32")) is None


def test_a_group_that_the_format_cannot_hold_is_not_taken():
    far = codes(0, 15) * halves(0.01, 0.02) + 1.0  # zero lies far outside the codes
    assert find_grid(matrix(far), parse_weight("uint4:g32")) is None
    assert find_grid(matrix(q8_0()), parse_weight("int8:g32")) is None  # a bf16 scale is off by a quarter of a step


def test_the_last_group_may_be_short():
    weight = matrix(q4_0())[:, :75]
    grid = find_grid(weight, parse_weight("uint4:g32"))
    assert torch.equal(dequantize(grid.quantized, parse_weight("uint4:g32")), weight)


@pytest.mark.parametrize("quantize", ["rtn", "gptq", "learned-clip"])
def test_no_method_rounds_them_again(quantize):
    weight, format = matrix(q4_0()), parse_weight("uint4:g32")
    done = compress_weight(weight, WeightPlan(format, quantize=quantize), statistics(96))
    assert torch.equal(decompress_weight(done, format), weight) and done.error == done.grid_error == 0
    pruned = compress_weight(weight, WeightPlan(format, density=0.5, quantize=quantize), statistics(96))
    assert pruned.grid_error is None and pruned.mask is not None
