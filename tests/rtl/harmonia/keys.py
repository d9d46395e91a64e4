"""Keys for Harmonia's offsets, and what must come out: attention's specification, in the clocked model's cycles."""

import numpy as np
import torch

from tests.rtl.clocked import clocked, combinational, enough, packed
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


def assert_offsets(top, jobs):
    for keys, (entries, cycles) in zip(jobs, run(top, jobs), strict=True):
        expected = reference.key_offsets(torch.from_numpy(keys), top)
        assert torch.equal(offsets(entries, top, keys.shape[1]), expected)
        assert cycles == harmonia_offsets.cycles(*keys.shape)


def assert_smooth(random, count):
    """Keys less their offsets as `attention_reference` subtracts: rounded to FP32, then to FP16."""
    inputs, expected = [], []
    for _ in range(count):
        keys, extreme, chosen = halves(random, 2), halves(random, 1)[0], int(random.integers(3))
        extreme = extreme if extreme else np.float16(0)  # the generator gives no negative zero
        entries = packed([1 | int(half_bits(extreme)) << 1 | chosen << 17, 0, 0], 1 + 16 + 2)
        inputs.append({"channel": 1, "entries": entries, "keys": packed(half_bits(keys), 16)})
        offset = torch.tensor(float(extreme) / 2 if chosen == 1 else 0.0)
        smooth = harmonia_offsets.subtract(torch.from_numpy(keys), offset)
        expected.append((packed(half_bits(smooth.numpy()), 16),))
    unit = KeySubtractor(OffsetParameters(rows=2, columns=2, channels=4, top=3))
    assert combinational(unit, inputs, ["smooth"]) == expected


def check_offsets(seed, vectors):
    """Columns of random keys, at least so many; how many."""
    random = np.random.default_rng(seed)
    jobs, columns = enough(lambda: any_keys(random), lambda keys: passes(keys)[..., 0].size, vectors)
    assert_offsets((1, 3, 5)[seed % 3], jobs)
    return columns


def check_smooth(seed, vectors):
    """Columns of two random keys; how many."""
    assert_smooth(np.random.default_rng(seed), vectors)
    return vectors
