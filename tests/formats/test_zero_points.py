"""Zero points of unsigned integers: between codes, and whole where weights are dropped."""

import pytest
import torch

from tests.formats.devices import on_devices
from tests.formats.tensor_cases import GROUPS, edge_matrix, on_scale_types
from tilepress.formats import UNSIGNED, Scaling, WeightFormat, dequantize, parse_weight, quantize


def test_unsigned_group_by_hand():
    """From -1 to 2 in three steps: scale 1, zero point 1, which is stored as 64; a range always reaches zero."""
    format = parse_weight("uint2:g16:fp32")
    weight = torch.tensor([[-1.0, 2.0, 0.0, 0.5, 1.5, 1.0] + [0.0] * 10 + [3.0, 6.0] + [-1.5, -3.0] * 7])
    got = quantize(weight[:, :18], format)
    assert got.codes[0, :6].tolist() == [0, 3, 1, 2, 2, 2]
    assert got.scales.tolist() == [[1.0, 2.0]] and got.zeros.tolist() == [[64, 0]]
    assert dequantize(got, format)[0, [0, 1, 2, 3, 16, 17]].tolist() == [-1.0, 2.0, 0.0, 1.0, 4.0, 6.0]
    negative = quantize(weight[:, 18:], format)
    assert negative.scales.tolist() == [[1.0]] and negative.zeros.tolist() == [[192]]


def test_zero_points_lie_between_codes_by_hand():
    """From -1.3 to 13.7 in fifteen steps: scale 1, zero point 1.3, which is nearest to 21 sixteenths."""
    format = parse_weight("uint4:g16:fp32")
    weight = torch.tensor([[-1.3, 13.7, 0.0, 5.7] * 4])
    got = quantize(weight, format)
    assert got.codes[0, :4].tolist() == [0, 15, 1, 7]
    assert got.scales.tolist() == [[1.0]] and got.zeros.tolist() == [[21]]
    assert dequantize(got, format)[0, :4].tolist() == [-1.3125, 13.6875, -0.3125, 5.6875]
    sparse = quantize(weight, format, sparse=True)
    assert sparse.zeros.tolist() == [[16]]
    assert dequantize(sparse, format)[0, :4].tolist() == [-1.0, 14.0, 0.0, 6.0]


@on_devices
@on_scale_types
@pytest.mark.parametrize("element", UNSIGNED, ids=str)
def test_zero_stays_zero_where_weights_are_dropped(element, type, device):
    weight = edge_matrix()
    weight[:, ::3] = 0
    for format in (WeightFormat(element, Scaling(group, type)) for group in GROUPS):
        got = quantize(weight.to(device), format, sparse=True)
        assert not got.zeros.to(torch.int32).remainder(1 << (8 - element.bits)).any()
        assert not dequantize(got, format)[:, ::3].any()


@on_devices
@pytest.mark.parametrize("element", UNSIGNED, ids=str)
def test_weights_that_were_codes_come_back(element, device):
    """As GGUF's Q4_1 has them, d · q + m: the codes and the scale exactly, and m to half a step of the zero point."""
    choice = torch.Generator().manual_seed(element.bits)
    codes = torch.randint(element.codes, (40, 4, 32), generator=choice)
    codes[..., 5], codes[..., 20] = 0, element.codes - 1
    d = (0.001 + torch.rand(40, 4, 1, generator=choice) / 50).half().float()
    m = (-torch.rand(40, 4, 1, generator=choice) * d * element.max).half().float()
    weight = (codes * d + m).flatten(1).to(device)
    format = WeightFormat(element, Scaling(32, "fp16"))
    got = quantize(weight, format)
    assert torch.equal(got.codes.cpu().view(codes.shape), codes.to(torch.uint8))
    assert torch.equal(got.scales.cpu().float(), d.squeeze(-1))
    error = (dequantize(got, format) - weight).cpu().view(codes.shape) / d
    assert error.abs().max() <= 2.0 ** (element.bits - 9) + 1e-3
