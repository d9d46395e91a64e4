"""Prompts that a matrix unit attends to at once: every output, and every byte of the cache, as token by token."""

import functools

import pytest
import torch
from tests.kernels.kv_cases import by_steps, tensors

from tilepress import kernels
from tilepress.formats.kv import parse_kv
from tilepress.kernels.attention_reference import Softmax
from tilepress.kernels.kv_store import BfpKvStore

FORMATS = [
    "bfp4",
    "bfp8",
    "bfp:m4",
    "bfp4n+rotate",
    "bfp:m3:hi6:initial7:local5",
    "bfp:m2:hi4:initial0:local33",
    "bfp:m5:hi7:initial40:local100",
    "bfp:m2:near:hi8:initial33:local32",
    "bfp:m4:hi8:initial5:local0",
]


@pytest.fixture(params=["portable", "best"], autouse=True)
def machine(request):
    """Portable code has a matrix unit that is emulated; the best may have one."""
    if request.param == "best":
        yield
        return
    with kernels.forced_isa("portable"):
        yield


def make(name, batch=1, heads=2, channels=32, **options):
    format = parse_kv(name)
    return BfpKvStore(format.bfp, batch, heads, channels, rotated=format.rotated, **options)


def assert_same(one, other):
    states = one.state(), other.state()
    assert states[0].keys() == states[1].keys() and one.lengths == other.lengths
    for name, mine in states[0].items():
        assert torch.equal(mine, states[1][name]), name


@functools.cache
def token_by_token(name, isa, **options):
    """Tensors, attention to tokens that come one by one on an instruction set, and the store after them."""
    arrays, store = tensors(199, channels=32), make(name, **options)
    return arrays, by_steps(store, *arrays), store


@pytest.mark.parametrize("sizes", [[199], [45, 154], [64, 64, 71], [1, 33, 100, 2, 63]])
@pytest.mark.parametrize("options", [{}, {"window": 110}, {"smoothed_channels": 3}], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_steps_of_any_size_are_as_token_by_token(name, options, sizes):
    arrays, expected, other = token_by_token(name, kernels.active_isa(), **options)
    one = make(name, **options)
    assert torch.equal(by_steps(one, *arrays, sizes=sizes), expected)
    assert_same(one, other)


@pytest.mark.parametrize("window", [3, 40, 65])
def test_windows_shorter_than_the_recent_tokens(window):
    arrays = tensors(199, channels=32)
    one, other = (make("bfp4", window=window) for _ in range(2))
    assert torch.equal(by_steps(one, *arrays, sizes=[100, 99]), by_steps(other, *arrays))
    assert_same(one, other)


@pytest.mark.parametrize("rows", [1, 3, 8, 40, 130])
def test_any_number_of_query_heads(rows):
    arrays = tensors(80, heads=1, rows=rows)
    softmax = Softmax(softcap=3.0, sinks=torch.linspace(-3.0, 8.0, rows))
    one, other = (make("bfp4", heads=1, channels=64) for _ in range(2))
    together = by_steps(one, *arrays, sizes=80, softmax=softmax)
    assert torch.equal(together, by_steps(other, *arrays, softmax=softmax))


@pytest.mark.parametrize("name", ["bfp4", "bfp8"])
def test_segments_are_added_in_their_order(name):
    arrays = tensors(2200, heads=1, rows=1, channels=32)
    one, other = (make(name, heads=1) for _ in range(2))
    assert torch.equal(by_steps(one, *arrays, sizes=[2199, 1]), by_steps(other, *arrays, sizes=[1000, *[20] * 60]))
    assert_same(one, other)


def test_sequences_of_different_lengths():
    """Padding leaves them so; the step after it has none."""
    queries, keys, values = tensors(150, batch=3, channels=32)
    mask = torch.ones(3, 50, dtype=torch.bool)
    mask[0, :17] = mask[2, :40] = False
    one, other = (make("bfp4", batch=3) for _ in range(2))
    first, rest = ([x[:, :, part] for x in (queries, keys, values)] for part in (slice(0, 50), slice(50, 150)))
    for cache in (one, other):
        cache.attend(*first, 0.125, mask)
    assert torch.equal(by_steps(one, *rest, sizes=100), by_steps(other, *rest))
    assert_same(one, other)


def test_more_sequences_than_are_attended_to_at_once():
    """Their pages have more bytes than one slab, which holds 96 tokens of each."""
    arrays = tensors(100, batch=64, heads=16, rows=1, channels=32)
    one, other = (make("bfp4", batch=64, heads=16) for _ in range(2))
    assert torch.equal(by_steps(one, *arrays, sizes=100), by_steps(other, *arrays, sizes=31))
    assert_same(one, other)


@pytest.mark.parametrize("options", [{}, {"smoothed_channels": 4}], ids=str)
def test_sparse_pages(options):
    arrays = tensors(300, channels=32)
    one, other = (make("bfp4", sparsity=(30, 50), **options) for _ in range(2))
    assert torch.equal(by_steps(one, *arrays, sizes=[200, 100]), by_steps(other, *arrays))
    assert_same(one, other)


def test_a_shortened_cache_goes_on():
    arrays = tensors(230, channels=32)
    one, other = (make("bfp4") for _ in range(2))
    first, rest = ([x[:, :, part] for x in arrays] for part in (slice(0, 130), slice(130, 230)))
    for cache in (one, other):
        by_steps(cache, *first, sizes=130)
        cache.crop([101])
    assert torch.equal(by_steps(one, *rest, sizes=100), by_steps(other, *rest))
    assert_same(one, other)
