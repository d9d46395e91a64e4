"""Harmonia's offsets in hardware: what attention's specification takes of keys, and the clocked model's cycles."""

import numpy as np
import pytest
import torch

from tests.rtl.clocked import clocked, combinational, packed, vectors
from tests.rtl.data import half_bits, halves
from tilepress.kernels import attention_reference as reference
from tilepress.rtl.harmonia.offsets import KeySubtractor, OffsetGenerator, OffsetParameters
from tilepress.simulate.units import harmonia_offsets

ROWS, COLUMNS = 8, 16
ENTRY_BITS = 1 + 16 + 6


def passes(keys):
    """Columns of eight tokens; zeros past the edges."""
    tokens, channels = (-(-size // side) * side for size, side in zip(keys.shape, (ROWS, COLUMNS), strict=True))
    whole = np.zeros((tokens, channels), np.uint16)
    whole[: keys.shape[0], : keys.shape[1]] = half_bits(keys)
    return whole.reshape(-1, ROWS, channels).transpose(0, 2, 1)


def run(top, jobs, pauses=lambda: 0):
    """The list's pattern and the cycles of each head's keys [tokens, channels]."""
    inputs, starts = [], []
    for keys in jobs:
        starts.append(len(inputs))
        columns = passes(keys)
        for index, of_pass in enumerate(columns):
            marks = {"channels": keys.shape[1], "last_pass": int(index == len(columns) - 1)}
            for column in of_pass:
                inputs.append({"valid": 1, "keys": packed(column, 16), **marks})
                inputs += [{"valid": 0}] * pauses()
        inputs += [{"valid": 0}] * keys.shape[1]
    seen = clocked(OffsetGenerator(OffsetParameters(channels=64, top=top)), inputs, ["done", "entries"])
    ends = [(cycle, entries) for cycle, (done, entries) in enumerate(seen) if done]
    return [(entries, end + 1 - start) for (end, entries), start in zip(ends, starts, strict=True)]


def offsets(entries, top, channels):
    """What the list stands for, float32 [channels]."""
    result = torch.zeros(channels)
    for place in range(top):
        entry = entries >> ENTRY_BITS * place
        if entry & 1:
            extreme = np.array(entry >> 1 & 0xFFFF, np.uint16).view(np.float16)
            result[entry >> 17 & 63] = float(extreme) / 2
    return result


def any_keys(random):
    return halves(random, int(random.integers(1, 33)), int(random.integers(1, 65)))


@pytest.mark.parametrize("top", [1, 3, 5])
def test_any_keys(top):
    random = np.random.default_rng(top)
    jobs = [any_keys(random) for _ in range(-(-vectors(2000) // 200))]
    for keys, (entries, cycles) in zip(jobs, run(top, jobs), strict=True):
        expected = reference.key_offsets(torch.from_numpy(keys), top)
        assert torch.equal(offsets(entries, top, keys.shape[1]), expected)
        assert cycles == harmonia_offsets.cycles(*keys.shape)


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
    """As `attention_reference` subtracts: rounded to FP32, then to FP16."""
    random, inputs, expected = np.random.default_rng(3), [], []
    for _ in range(vectors(150)):
        keys, extreme, chosen = halves(random, 2), halves(random, 1)[0], int(random.integers(3))
        extreme = extreme if extreme else np.float16(0)  # the generator gives no negative zero
        entries = packed([1 | int(half_bits(extreme)) << 1 | chosen << 17, 0, 0], 1 + 16 + 2)
        inputs.append({"channel": 1, "entries": entries, "keys": packed(half_bits(keys), 16)})
        offset = torch.tensor(float(extreme) / 2 if chosen == 1 else 0.0)
        smooth = harmonia_offsets.subtract(torch.from_numpy(keys), offset)
        expected.append((packed(half_bits(smooth.numpy()), 16),))
    unit = KeySubtractor(OffsetParameters(rows=2, columns=2, channels=4, top=3))
    assert combinational(unit, inputs, ["smooth"]) == expected


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
