"""Saved states that were tampered with: refused, or a cache that can be gone on with, but never a crash."""

import resource
from pathlib import Path
from random import Random

import pytest
import torch

from tilepress.formats.kv import parse_kv
from tilepress.kernels.kv_store import kv_store

CACHES = [
    ("bfp4", {}),
    ("bfp4", {"smoothed_channels": 4}),
    ("bfp8", {"window": 40}),
    ("bfp4+sparse:k30,v50", {"smoothed_channels": 2}),
    ("bfp8+sparse:k30,v50", {}),
    ("sparse:k30,v50", {}),
    ("bf16+sparse:k70,v20", {"window": 40}),
]


def make(name, options):
    return kv_store(parse_kv(name), 2, 2, 32, **options)


def tokens(count, seed, batch=2):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, heads, count, 32, generator=generator) for heads in (4, 2, 2)]


def tampered(lengths, state, random):
    """One thing changed: a length, an array's size or its bytes, or which arrays there are."""
    state, lengths = dict(state), list(lengths)
    name = random.choice(sorted(state))
    array = state[name].clone()
    how = random.choice(["length", "cut", "more", "bits", "noise", "gone", "renamed"])
    if how == "length":
        lengths[random.randrange(2)] = random.choice([-1, 0, 31, 32, 69, 71, 96, 1 << 30, 1 << 40])
    elif how == "cut":
        state[name] = array[: random.randrange(len(array))]
    elif how == "more":
        state[name] = torch.cat([array, array[: random.randrange(len(array)) + 1]])
    elif how == "bits":
        for _ in range(random.randrange(1, 20)):
            array[random.randrange(len(array))] ^= 1 << random.randrange(8)
        state[name] = array
    elif how == "noise":
        generator = torch.Generator().manual_seed(random.randrange(1 << 30))
        state[name] = torch.randint(0, 256, array.shape, generator=generator, dtype=torch.uint8)
    else:
        del state[name]
        if how == "renamed":
            state["x" + name] = array
    return lengths, state


def go_on(cache, random):
    """Everything that can be done with a cache."""
    batch = len(cache.lengths)
    queries, keys, values = tokens(random.choice([1, 3, 40]), random.randrange(99), batch)
    cache.attend(queries, keys, values, 0.125)
    cache.crop([max(length - random.choice([0, 1, 5, 70]), length - 30, 0) for length in cache.lengths])
    cache.append(keys, values)
    cache.select([1, 0, 1])
    cache.attend(*tokens(2, 1, 3), 0.125)
    assert cache.state()


@pytest.mark.parametrize(("name", "options"), CACHES)
def test_no_state_does_harm(name, options):
    refused = 0
    for count in (20, 70):
        whole = make(name, options)
        whole.append(*tokens(count, 0)[1:])
        for seed in range(60):
            random = Random(seed)
            lengths, state = tampered(whole.lengths, whole.state(), random)
            cache = make(name, options)
            try:
                cache.restore(lengths, state)
            except (ValueError, OverflowError):
                refused += 1
                assert cache.lengths == [0, 0]
                continue
            go_on(cache, random)
    assert 20 < refused < 120


def test_no_format_asks_for_more_memory_than_the_state_has():
    """Every token of 2^21 has eight bits: half a terabyte for sequences of none, which have 16 MB here."""
    state = {"open_values": torch.zeros(4000 * 2 * 32 * 32 * 2, dtype=torch.uint8)}
    cache = make("bfp:m4:hi8:initial1048576:local1048576", {})
    with pytest.raises(ValueError, match="4000 sequences have more bytes than there are"):
        cache.restore([0] * 4000, state)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("name", ["bfp8", "bfp4", "sparse:k30,v50"])
def test_tokens_that_left_the_window_take_no_memory(name):
    """Their number is all that a state has of them, and may be a lie."""
    whole = make(name, {"window": 40})
    whole.append(*tokens(200, 0)[1:])
    before, gone = resident_bytes(), 3 << 28  # so that tokens keep their places in the ring of three blocks
    cache = make(name, {"window": 40})
    cache.restore([length + gone for length in whole.lengths], whole.state())
    for seed in range(3):
        asked = tokens(1, seed)
        assert torch.equal(cache.attend(*asked, 0.125), whole.attend(*asked, 0.125))
    cache.select([1, 0, 1])
    assert cache.lengths == [gone + 203] * 3
    assert resident_bytes() - before < 64 << 20


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
