"""Quantised matrices: bit-equal to the scalar reference, how far weights move, what is refused."""

import math
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.devices import on_devices
from tests.formats.tensor_cases import (
    DTYPES,
    ELEMENTS,
    FORMATS,
    GROUPS,
    TABLES,
    as_weights,
    assert_follows_reference,
    bits_of,
    edge_matrix,
    float32_bits,
    float32s,
    formats,
    matrices,
    on_elements,
    on_groups,
    on_scale_types,
)
from tilepress.formats import (
    FLOATS,
    SIGNED,
    UNSIGNED,
    Scaling,
    WeightFormat,
    dequantize,
    parse_weight,
    quantize,
    reference,
    weight_names,
)
from tilepress.formats.tensors import Quantized, scale_values, scales_of, sqnr

# Against the reference


@on_devices
@on_groups
@on_scale_types
@on_elements
def test_every_scaled_format_follows_the_reference(element, type, group, device):
    assert_follows_reference(edge_matrix(), WeightFormat(element, Scaling(group, type)), device)


@on_devices
@pytest.mark.parametrize("element", [*FLOATS, *TABLES], ids=str)
def test_every_unscaled_format_follows_the_reference(element, device):
    assert_follows_reference(edge_matrix(), WeightFormat(element), device)


@on_devices
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", weight_names())
def test_every_dtype_follows_the_reference(name, dtype, device):
    assert_follows_reference(as_weights(edge_matrix(37), dtype), parse_weight(name), device)


@on_devices
@settings(max_examples=300)
@given(weight=matrices(), format=formats, sparse=st.booleans())
def test_any_matrix_follows_the_reference(device, weight, format, sparse):
    assert_follows_reference(weight, format, device, sparse)


@on_devices
@pytest.mark.parametrize("name", ["int4:g16", "uint4:g16", "mxfp4", "nf4:row", "bf16"])
@pytest.mark.parametrize("inputs", [32, 40])
def test_strided_matrices_follow_the_reference(name, inputs, device):
    x = torch.randn(inputs, 6, generator=torch.Generator().manual_seed(0))
    assert_follows_reference(x.to(device).t(), parse_weight(name), device)
    assert_follows_reference(x.to(device).t()[::2], parse_weight(name), device)


@on_devices
@on_scale_types
@settings(max_examples=20)
@given(extents=st.lists(float32s.map(abs), min_size=1, max_size=8))
def test_any_extent_has_the_scale_of_the_reference(device, type, extents):
    extents = [*extents, 0.0, math.inf]
    for format in (WeightFormat(element, Scaling(16, type)) for element in ELEMENTS):
        with np.errstate(over="ignore", under="ignore"):
            expected = [float(reference.scale_of(np.float32(extent), format)) for extent in extents]
        got = scales_of(torch.tensor(extents, device=device), format)
        assert bits_of(scale_values(got)) == float32_bits(expected), format


# How far a weight is moved

# The half step of rounding, and what a scale rounded to its type moves the largest code by.
ROUNDOFF = {"bf16": 2.0**-9, "fp16": 2.0**-12, "fp32": 2.0**-25}


@on_devices
@pytest.mark.parametrize("type", ROUNDOFF)
@pytest.mark.parametrize("element", [*SIGNED, *UNSIGNED], ids=str)
def test_integers_move_a_weight_by_half_a_scale_at_most(element, type, device):
    weight = torch.randn(4, 200, generator=torch.Generator().manual_seed(element.bits)).to(device)
    slack = element.max * 2 * ROUNDOFF[type] if element in UNSIGNED else 0.0
    for format in (WeightFormat(element, Scaling(group, type)) for group in GROUPS):
        got = quantize(weight, format)
        size = format.scaling.group_inputs(200)
        scales = scale_values(got.scales).double().repeat_interleave(size, dim=1)[:, :200]
        error = (weight.double() - dequantize(got, format).double()).abs() / scales
        assert error.max() <= 0.5 + slack + 1e-4


@on_devices
@pytest.mark.parametrize("name", ["int4:g32", "uint4:g128", "nf4:g64", "mxfp4", "mxfp8", "bf8", "bf16"])
def test_quantising_a_dequantised_matrix_keeps_it(name, device):
    format = parse_weight(name)
    weight = torch.randn(4, 160, generator=torch.Generator().manual_seed(0)).to(device)
    once = dequantize(quantize(weight, format), format)
    again = dequantize(quantize(once, format), format)
    assert torch.allclose(again, once, rtol=2**-7, atol=0)


def test_more_bits_move_weights_less():
    weight = torch.randn(8, 256, generator=torch.Generator().manual_seed(0))
    for names in [[f"int{bits}:g32" for bits in range(2, 9)], [f"uint{bits}:g32" for bits in range(2, 9)]]:
        ratios = [sqnr(weight, dequantize(quantize(weight, f), f)) for f in map(parse_weight, names)]
        assert all(more > less + 4 for less, more in pairwise(ratios))


@pytest.mark.parametrize(
    ("approximation", "decibels"), [([3.0, 4.0], math.inf), ([3.0, 3.5], 20.0), ([0.0, 0.0], 0.0), ([8.0, 4.0], 0.0)]
)
def test_signal_to_noise_ratio(approximation, decibels):
    assert sqnr(torch.tensor([3.0, 4.0]), torch.tensor(approximation)) == pytest.approx(decibels)


# Refusals


@pytest.mark.parametrize("shape", [(), (8,), (2, 3, 4)], ids=str)
def test_other_than_a_matrix_is_refused(shape):
    with pytest.raises(ValueError, match=r"^a weight matrix is \[neurons, inputs\], not \["):
        quantize(torch.ones(shape), parse_weight("int4:g32"))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("name", ["bf16", "int4:g32", "int8:row"])
def test_empty_matrix_is_refused(name, shape):
    message = rf"^an empty matrix has no format: \[{shape[0]}, {shape[1]}\]$"
    with pytest.raises(ValueError, match=message):
        quantize(torch.ones(shape), parse_weight(name))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.bool, torch.float64, torch.float8_e5m2])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match=f"^weights are float32, bfloat16 or float16, not {dtype}$"):
        quantize(torch.zeros(2, 16).to(dtype), parse_weight("int4:g32"))


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match=r"^weights are a torch tensor, not ndarray$"):
        quantize(np.zeros((2, 32), np.float32), parse_weight("int4:g32"))


@on_devices
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["bf16", "int4:g32", "uint4:g32", "mxfp4", "nf4:row"])
@pytest.mark.parametrize("bad", [[math.nan], [math.inf, -math.inf], [math.nan, math.inf, -math.inf]], ids=str)
def test_nonfinite_weights_are_refused_and_counted(name, bad, dtype, device):
    weight = torch.ones(2, 40, dtype=dtype)
    weight[1, 30 : 30 + len(bad)] = torch.tensor(bad, dtype=dtype)
    with pytest.raises(ValueError, match=f"^weights must be finite: {len(bad)} are not$"):
        quantize(weight.to(device), parse_weight(name))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["bf16", "int4:g32"])
def test_reference_refuses_nonfinite_weights(name, bad):
    with pytest.raises(ValueError, match=r"^weights must be finite$"):
        reference.quantize_row([0.0, bad], parse_weight(name))


# What comes back


@on_devices
@pytest.mark.parametrize("name", weight_names())
def test_parts_of_a_quantised_matrix(name, device):
    format = parse_weight(name)
    weight = torch.randn(3, 100, generator=torch.Generator().manual_seed(0)).to(device)
    got = quantize(weight, format)
    parts = [part for part in (got.codes, got.scales, got.zeros) if part is not None]
    assert len(parts) == 1 + (format.scaling is not None) + format.has_zero_point
    assert got.codes.shape == weight.shape
    assert all(part.shape == (3, format.scaling.groups(100)) for part in parts[1:])
    assert all(part.device.type == device and part.is_contiguous() for part in parts)
    assert dequantize(got, format).shape == weight.shape


def test_the_weight_is_left_as_it_was():
    weight = edge_matrix()
    for format in FORMATS[::17]:
        quantize(weight, format)
    assert bits_of(weight) == bits_of(edge_matrix())


@pytest.mark.parametrize("name", ["bf16", "int4:g32", "uint4:g32", "mxfp4", "nf4:g64"])
def test_gradients_are_not_recorded(name):
    got = quantize(torch.ones(2, 64, requires_grad=True), parse_weight(name))
    assert not any(part.requires_grad for part in (got.codes, got.scales, got.zeros) if part is not None)


def test_quantised_matrix_is_frozen():
    got = Quantized(torch.zeros(1, 1, dtype=torch.uint8))
    assert got.scales is None and got.zeros is None
    with pytest.raises(FrozenInstanceError):
        got.codes = got.codes
