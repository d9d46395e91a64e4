"""Harmonia's converter in hardware, both paths, against `formats.bfp` and the clocked model's cycles."""

import numpy as np
import pytest

from tests.rtl.clocked import vectors
from tests.rtl.data import halves
from tests.rtl.harmonia.conversions import Bench, any_job, assert_as_modelled, assert_encoded
from tilepress.rtl.harmonia.converter import ConverterParameters
from tilepress.simulate.units.harmonia_converter import Path


def test_values_and_cycles():
    random = np.random.default_rng(0)
    assert_as_modelled([any_job(random) for _ in range(-(-vectors(700) // 100))])


def test_values_that_come_with_pauses():
    random = np.random.default_rng(1)
    jobs = [any_job(random) for _ in range(-(-vectors(400) // 100))]
    for job, result in zip(jobs, Bench(lambda: int(random.integers(3))).run(jobs)[0], strict=True):
        assert_encoded(*job, result)


@pytest.mark.parametrize("tokens", [5, 9, 17, 32, 40])
def test_blocks_of_fewer_passes(tokens):
    job = halves(np.random.default_rng(tokens), tokens, 33), 4, Path.tokens
    assert_as_modelled([job])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"rows": 1}, "rows must be an int from 2 to 64, got 1"),
        ({"columns": 4}, "columns must be an int from 8 to 64, got 4"),
        ({"group": 36}, "a group of 36 values is no multiple of 8 rows"),
        ({"mantissa": 12}, "mantissa must be an int from 1 to 11, got 12"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        ConverterParameters(**change)
