"""A layer through Anda's hardware alone, FP16 activations to FP32 sums: the bits of `kernels.linear`."""

import pytest
import torch

from tests.rtl.anda import layers
from tests.simulate.units.data import spread
from tilepress import kernels
from tilepress.rtl.anda.array import ArrayParameters
from tilepress.simulate.units import anda_apu
from tilepress.tiles import pack


@pytest.mark.parametrize("tokens, rows, mantissa", [(1, 6, 4), (2, 4, 7)])
def test_a_layer(tokens, rows, mantissa):
    """With outlier channels, as activations of language models have; rows that fill the array and that do not."""
    inputs = 96
    x = spread(tokens, inputs, seed=rows)
    x[:, 5] *= 64
    weight = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows))
    matrix = pack(weight, "int4:g32")
    totals, cycles = layers.linear(x, matrix, mantissa)
    expected = kernels.linear(x.float(), matrix, activations=f"bfp:g32:m{mantissa}")
    assert torch.equal(totals.view(torch.int32), expected.view(torch.int32))
    assert cycles == [anda_apu.cycles(inputs // 32, mantissa)] * -(-rows // 4)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tokens": 0}, "tokens must be an int from 1 to 64, got 0"),
        ({"neurons": 65}, "neurons must be an int from 1 to 64, got 65"),
        ({"groups": 0}, "groups must be an int from 1 to 1024, got 0"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        ArrayParameters(**change)
