"""OCP Microscaling, by a rule written down from its own text."""

import numpy as np
import pytest
import torch

from tests.formats.devices import on_devices
from tests.formats.tensor_cases import EDGES, filled
from tilepress.formats import dequantize, parse_weight, quantize

OCP = {  # exponent bits' least exponent, mantissa bits, exponent of the largest value, largest value
    "mxfp4": (0, 1, 2, 6.0),
    "mxfp6": (0, 3, 2, 7.5),
    "mxfp6-e3m2": (-2, 2, 4, 28.0),
    "mxfp8": (-6, 3, 8, 448.0),
    "mxfp8-e5m2": (-14, 2, 15, 57344.0),
}


def floor_log2(x: np.ndarray) -> np.ndarray:
    return np.frexp(x)[1] - 1


def ocp_blocks(weight: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Float64 [blocks, 32] as MX values, and the blocks' scale exponents.

    The shared exponent is the largest power of two in the block less the element's largest; elements are rounded
    to even in steps of their own exponent, and saturate.
    """
    least, mantissa, emax, largest = OCP[name]
    amax = np.abs(weight).max(-1, keepdims=True)
    shared = np.where(amax > 0, floor_log2(amax) - emax, 0).clip(-127, 127)
    scaled = weight / 2.0**shared
    step = 2.0 ** (np.maximum(np.where(scaled == 0, least, floor_log2(scaled)), least) - mantissa)
    rounded = np.rint(scaled / step) * step
    return np.clip(rounded, -largest, largest) * 2.0**shared, shared[:, 0]


@on_devices
@pytest.mark.parametrize("scale", [1.0, 1e-3, 3e4, 1e30, 1e-30, 1e-37, 1e-41], ids=str)
@pytest.mark.parametrize("name", OCP)
def test_mx_follows_the_ocp_rule(name, scale, device):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(200, 32, generator=generator) * scale
    weight[0] = 0
    weight[1:17] *= 2.0 ** torch.randint(-20, 1, (16, 32), generator=generator)
    weight[17:25] = filled(EDGES, (8, 32), seed=0)
    format = parse_weight(name)
    got = quantize(weight.to(device), format)
    expected, exponents = ocp_blocks(weight.double().numpy(), name)
    assert (got.scales[:, 0].cpu().to(torch.int32) - 127).tolist() == exponents.tolist()
    assert np.array_equal(dequantize(got, format).cpu().numpy(), expected.astype(np.float32))
