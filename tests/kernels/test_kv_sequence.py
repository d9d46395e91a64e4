"""Sequences in packed stores that share blocks: each as if it were alone, and none changes another's."""

import os
from pathlib import Path

import pytest
import torch
from tests.kernels.kv_cases import by_steps, tensors

from tilepress import _native
from tilepress.formats.kv import parse_kv
from tilepress.kernels.kv_store import KvStore, kv_store

LAYERS, HEADS, CHANNELS, BLOCK = 2, 2, 32, _native.BLOCK_TOKENS
SHARING = ["bfp8", "bfp:m4", "bfp:m6:near"]
OTHERS = ["bfp4", "bfp4n+rotate", "bfp8+sparse:k30,v50", "sparse:k30,v50"]


def stores(name, smoothed=0, **options):
    """Empty ones of one sequence."""
    format = parse_kv(name)
    return [kv_store(format, 1, HEADS, CHANNELS, smoothed_channels=smoothed, **options) for _ in range(LAYERS)]


def sequence(of, blocks=()):
    return _native.KvSequence([store.native for store in of], list(blocks))


def layer(one, number, of):
    """A layer of a sequence, as a store."""
    view = KvStore.__new__(type(of[number]))
    view.__dict__.update(of[number].__dict__, native=one.layer(number))
    return view


def attend(one, of, arrays, first, end, steps):
    """Outputs of both layers for tokens from `first` to `end`."""
    part = [tensor[:, :, first:end] for tensor in arrays]
    return torch.stack([by_steps(layer(one, i, of), *part, sizes=steps) for i in range(LAYERS)])


def assert_same(one, other, of):
    for i in range(LAYERS):
        mine, theirs = (layer(each, i, of) for each in (one, other))
        assert mine.lengths == theirs.lengths
        states = mine.state(), theirs.state()
        assert states[0].keys() == states[1].keys()
        for name, array in states[0].items():
            assert torch.equal(array, states[1][name]), name


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture
def arrays():
    return tensors(201, heads=HEADS, channels=CHANNELS)


@pytest.mark.parametrize("smoothed", [0, 3])
@pytest.mark.parametrize("name", SHARING)
def test_a_sequence_goes_on_from_blocks_of_another(name, smoothed, arrays):
    of = stores(name, smoothed)
    alone = sequence(of)
    expected = attend(alone, of, arrays, 0, 201, 67)
    blocks = [alone.block(0), alone.block(1)]
    other = sequence(of, blocks)
    assert other.length == 2 * BLOCK
    actual = attend(other, of, arrays, 2 * BLOCK, 201, [40, 97])
    assert torch.equal(actual, expected[..., 2 * BLOCK :, :])
    assert_same(other, alone, of)


@pytest.mark.parametrize("name", SHARING)
def test_shared_blocks_live_on(name, arrays):
    of = stores(name, 3)
    alone = sequence(of)
    expected = attend(alone, of, arrays, 0, 201, 201)
    blocks = [alone.block(0)]
    del alone
    assert torch.equal(attend(sequence(of, blocks), of, arrays, BLOCK, 201, 201 - BLOCK), expected[..., BLOCK:, :])


@pytest.mark.parametrize("length", [0, 10, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 5])
@pytest.mark.parametrize("name", SHARING + OTHERS)
def test_shortening_one_changes_no_other(name, length, arrays):
    of = stores(name, 0 if name.startswith("sparse") else 3)
    kept, alone = sequence(of), sequence(of)
    for one in (kept, alone):
        attend(one, of, arrays, 0, 150, 150)
    twin = kept.fork()
    twin.crop(length)
    attend(twin, of, [2 * tensor for tensor in arrays], length, 160, 31)
    assert_same(kept, alone, of)


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("length", [10, BLOCK, 4 * BLOCK, 150])
@pytest.mark.parametrize("name", SHARING + OTHERS)
def test_a_fork_goes_on_like_the_other(name, length, window, arrays):
    of = stores(name, 0 if name.startswith("sparse") else 3, window=window)
    one, alone = sequence(of), sequence(of)
    attend(one, of, arrays, 0, length, length)
    twin = one.fork()
    attend(one.fork(), of, [3 * tensor for tensor in arrays], length, 201, 40)
    expected = attend(alone, of, arrays, 0, 201, 201)[..., length:, :]
    assert torch.equal(attend(twin, of, arrays, length, 201, 17), expected)
    assert torch.equal(attend(one, of, arrays, length, 201, 51), expected)
    assert_same(one, twin, of)
    assert_same(one, alone, of)


@pytest.mark.parametrize("name", SHARING + OTHERS)
def test_a_fork_takes_little_memory(name, arrays):
    """Of a long sequence, which hardly changes any more."""
    of = stores(name)
    one = sequence(of)
    attend(one, of, [torch.cat([tensor] * 20, 2) for tensor in arrays], 0, 4000, 4000)
    before = resident()
    forks = [one.fork() for _ in range(100)]
    assert resident() - before < len(forks) * one.allocated // 3


def test_forks_share_memory(arrays):
    of = stores("bfp8")
    one = sequence(of)
    attend(one, of, arrays, 0, 201, 201)
    twin = one.fork()
    block, shared = one.block(0), sequence(of, [one.block(i) for i in range(6)])
    del one
    assert twin.allocated == shared.allocated + sequence(of, [block]).allocated - sequence(of).allocated
    assert (twin.length, shared.length) == (201, 6 * BLOCK)


@pytest.mark.parametrize("name", OTHERS)
def test_formats_whose_tokens_change_share_nothing(name, arrays):
    of = stores(name)
    one = sequence(of)
    attend(one, of, arrays, 0, 150, 150)
    assert not one.layer(0).has_blocks
    with pytest.raises(ValueError, match="the cache has no such block"):
        one.block(0)


def test_what_is_refused(arrays):
    of = stores("bfp8")
    one = sequence(of)
    attend(one, of, arrays, 0, 130, 130)
    for index in (-1, 4, 1 << 60):
        with pytest.raises(ValueError, match="the cache has no such block"):
            one.block(index)
    with pytest.raises(ValueError, match="there is no such layer"):
        one.layer(LAYERS)
    with pytest.raises(ValueError, match="a sequence has at least one layer"):
        _native.KvSequence([], [])
    with pytest.raises(ValueError, match="it has other layers"):
        sequence(of[:1], [one.block(0)])
    with pytest.raises(ValueError, match="a block is another cache's"):
        sequence(stores("bfp:m4"), [one.block(0)])
    with pytest.raises(ValueError, match="not a first one"):
        sequence(stores("bfp8", smoothed=3), [one.block(0)])
    with pytest.raises(ValueError, match="shares no blocks"):
        sequence(stores("bfp4"), [one.block(0)])
    with pytest.raises(ValueError, match="shares no blocks"):
        sequence(stores("bfp8", window=100), [one.block(0)])
    for batch in (kv_store(parse_kv("bfp8"), 2, HEADS, CHANNELS), layer(one, 0, of)):
        with pytest.raises(ValueError, match="one sequence, without tokens"):
            _native.KvSequence([batch.native], [])


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("name", SHARING + OTHERS)
def test_a_sequence_of_stores_goes_on_where_they_are(name, window, arrays):
    of = stores(name, window=window)
    alone = sequence(of)
    attend(alone, of, arrays, 0, 150, 150)
    given = stores(name, window=window)
    for store in given:
        store.append(*(tensor[:, :, :150] for tensor in arrays[1:]))
    one = _native.KvSequence([store.native for store in given])
    assert_same(one, alone, of)
    assert torch.equal(attend(one, of, arrays, 150, 201, 17), attend(alone, of, arrays, 150, 201, 51))
    assert_same(one, alone, of)
    assert given[0].lengths == [150]


def test_stores_that_are_no_sequence(arrays):
    first, second = stores("bfp8")
    first.append(*(tensor[:, :, :40] for tensor in arrays[1:]))
    with pytest.raises(ValueError, match="layers of a sequence have the same tokens"):
        _native.KvSequence([first.native, second.native])
    with pytest.raises(ValueError, match="a sequence has at least one layer"):
        _native.KvSequence([])
    first.select([0, 0])
    with pytest.raises(ValueError, match="one sequence has blocks, not several"):
        _native.KvSequence([first.native])
