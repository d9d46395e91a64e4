"""INT8 quantisers in hardware: the clocked models' codes, scales and cycles."""

import numpy as np
import pytest
import torch

from tests.rtl.clocked import VECTORS, combinational, vectors
from tests.rtl.data import half_bits
from tests.rtl.rivals.quantisers import any_matrix, any_scales, assert_offline, assert_online
from tilepress.rtl.floating import FP16
from tilepress.rtl.rivals.int8_quantiser import Quantise, QuantiserParameters
from tilepress.simulate.units.int8_quantiser import SCALING, code_of

SPECIAL = [0.0, -0.0, 2.0**-24, -(2.0**-24), 2.0**-14, 1.0, -1.0, 65504.0, -65504.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("pauses", [0, 3])
def test_offline(pauses):
    random, jobs = np.random.default_rng(pauses), []
    for _ in range(-(-vectors(700) // 100)):
        x = any_matrix(random)
        jobs.append((x, any_scales(random, x)))
    assert_offline(jobs, (lambda: int(random.integers(pauses))) if pauses else None)


@pytest.mark.parametrize("pauses", [0, 3])
@pytest.mark.parametrize("group", [SCALING, 64, 100])
def test_online(group, pauses):
    random = np.random.default_rng(group + pauses)
    matrices = [any_matrix(random) for _ in range(-(-vectors(400) // 100))]
    assert_online(matrices, group, (lambda: int(random.integers(pauses))) if pauses else None)


def test_every_corner_times_every_corner():
    values = np.array(SPECIAL, np.float16)
    pairs = [(value, scale) for value in values for scale in values]
    inputs = [dict(zip(("value", "scale"), half_bits(pair).tolist(), strict=True)) for pair in pairs]
    expected = [code_of(int(half_bits(value)), float(scale)) for value, scale in pairs]
    assert [code for (code,) in combinational(Quantise(FP16), inputs, ["code"])] == expected


def test_ties_go_to_even():
    values = np.arange(-130, 130, 0.25).astype(np.float16)
    inputs = [{"value": bits, "scale": FP16.one} for bits in half_bits(values).tolist()]
    expected = np.clip(np.rint(values), -127, 127).tolist()  # numpy, too, rounds ties to even
    assert [code for (code,) in combinational(Quantise(FP16), inputs, ["code"])] == expected


def test_groups_of_every_magnitude():
    """Each row's largest value is another one; the others are zeros."""
    patterns = np.arange(0, 0x7C01, 1 if VECTORS else 97, dtype=np.uint16)
    x = np.zeros((len(patterns), 24), np.uint16)
    x[np.arange(len(patterns)), np.arange(len(patterns)) % 24] = patterns
    assert_online([torch.from_numpy(x.view(np.float16))], 24)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"scale": "static"}, "scale must be one of 'offline', 'online', got 'static'"),
        ({"rows": 0}, "rows must be an int from 1 to 64, got 0"),
        ({"group": 23}, "group must be an int from 24 to 1024, got 23"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        QuantiserParameters(**change)
