"""Scales of whole tensors: their codes, their range, and examples worked by hand."""

import math

import pytest
import torch

from tests.formats.devices import on_devices
from tests.formats.tensor_cases import DTYPES, GROUPS, as_weights, bits_of, edge_matrix, on_elements, on_scale_types
from tilepress.formats import Scaling, WeightFormat, dequantize, parse_weight, quantize, reference
from tilepress.formats.tensors import scale_values


@on_devices
def test_e8m0_codes_are_powers_of_two_and_the_last_is_nan(device):
    values = scale_values(torch.arange(256, dtype=torch.uint8, device=device)).cpu()
    assert values.dtype == torch.float32
    assert values[:255].tolist() == [math.ldexp(1.0, code - 127) for code in range(255)]
    assert values[255].isnan()


@on_devices
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_float_scales_are_their_own_values(dtype, device):
    scales = as_weights(torch.tensor([[1.0, 2.0**-24, 3.140625]]), dtype)
    assert bits_of(scale_values(scales.to(device))) == bits_of(scales.float())


@on_devices
@on_scale_types
@on_elements
def test_group_of_zeros_has_scale_one(element, type, device):
    zeros = torch.tensor([0.0, -0.0, 0.0, 0.0], device=device).repeat(2, 16)
    for format in (WeightFormat(element, Scaling(group, type)) for group in GROUPS):
        got = quantize(zeros, format)
        assert scale_values(got.scales).tolist() == [[1.0] * format.scaling.groups(64)] * 2
        assert (dequantize(got, format) == element.decode(element.encode(0.0))).all()


@on_devices
@on_scale_types
@on_elements
def test_scales_are_positive_and_finite(element, type, device):
    got = quantize(edge_matrix().to(device), WeightFormat(element, Scaling(16, type)))
    scales = scale_values(got.scales)
    assert scales.isfinite().all() and (scales > 0).all()


@on_scale_types
@on_elements
def test_scales_of_the_reference_are_positive_and_finite(element, type):
    format = WeightFormat(element, Scaling(16, type))
    for row in edge_matrix().tolist():
        assert all(0 < scale < math.inf for scale in reference.quantize_row(row, format).scales)


@pytest.mark.parametrize(
    ("name", "largest", "scale"),
    [
        ("int4:g16:fp32", 3.5, 0.5),
        ("int8:g16:fp32", -127.0, 1.0),
        ("e4m3:g16:fp32", 224.0, 0.5),
        ("nf4:g16", -0.25, 0.25),
        ("int4:g16", 7 * (1 + 2**-8), 1.0),  # a tie in bf16: to even
        ("int4:g16:fp16", 7 * (1 + 2**-8), 1 + 2**-8),
        ("int4:g16:fp16", 1e30, 65504.0),
        ("int4:g16:fp16", 1e-30, 2.0**-24),
        ("int8:g16:bf16", 1e-40, 2.0**-133),
        ("int8:g16:fp32", 1e-44, 2.0**-149),
        ("mxfp4", 6.0, 1.0),  # 2^(floor(log2 6) - 2)
        ("mxfp4", 8.0, 2.0),
        ("mxfp4", -7.999, 1.0),
        ("mxfp8", 448.0, 1.0),  # 2^(8 - 8)
        ("mxfp8-e5m2", 1.0, 2.0**-15),
        ("mxfp4", 1e-40, 2.0**-127),
        ("int8:g32:e8m0", 127.0, 1.0),  # 2^(6 - 6)
    ],
)
def test_scale_by_hand(name, largest, scale):
    weight = torch.zeros(1, 16)
    weight[0, 3] = largest
    assert scale_values(quantize(weight, parse_weight(name)).scales).item() == scale
