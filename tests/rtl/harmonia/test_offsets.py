"""Harmonia's offsets in hardware: what attention's specification takes of keys, and the clocked model's cycles."""

import numpy as np
import pytest

from tests.rtl.clocked import vectors
from tests.rtl.harmonia.keys import any_keys, assert_offsets, assert_smooth, offsets, run
from tilepress.rtl.harmonia.offsets import OffsetParameters


@pytest.mark.parametrize("top", [1, 3, 5])
def test_any_keys(top):
    random = np.random.default_rng(top)
    assert_offsets(top, [any_keys(random) for _ in range(-(-vectors(2000) // 200))])


def test_keys_that_come_with_pauses():
    random = np.random.default_rng(9)
    jobs = [any_keys(random) for _ in range(4)]
    steady = [entries for entries, _ in run(2, jobs)]
    assert [entries for entries, _ in run(2, jobs, lambda: int(random.integers(3)))] == steady


def test_the_earliest_of_equals_and_the_sign():
    keys = np.zeros((20, 5), np.float16)
    keys[3, 1], keys[17, 1], keys[4, 4], keys[2, 0] = -7.0, 7.0, 7.0, 1.0
    ((one, _),), ((two, _),) = run(1, [keys]), run(2, [keys])
    assert offsets(one, 1, 5).tolist() == [0, -3.5, 0, 0, 0]
    assert offsets(two, 2, 5).tolist() == [0, -3.5, 0, 0, 3.5]


def test_keys_less_their_offsets():
    assert_smooth(np.random.default_rng(3), vectors(150))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"rows": 0}, "rows must be an int from 1 to 64, got 0"),
        ({"channels": 8}, "channels must be an int from 16 to 1024, got 8"),
        ({"channels": 100}, "100 channels are no multiple of 16 columns"),
        ({"top": 0}, "top must be an int from 1 to 128, got 0"),
    ],
)
def test_bad_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        OffsetParameters(**change)
