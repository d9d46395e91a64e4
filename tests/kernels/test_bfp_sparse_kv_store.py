"""Stores in block floating point that leave out the smallest values: to the bit as with zeros, in less memory."""

import pytest
import torch
from tests.kernels.kv_cases import BFP4, by_steps, tensors

from tilepress.formats.kv import parse_kv
from tilepress.kernels.kv_store import BfpKvStore, kv_store
from tilepress.nn.kv_pruning import prune_tokens

SPARSITY = (30, 50)


def pruned(keys, values, sparsity=SPARSITY):
    """As a sparse cache takes them up."""
    halves = (_halves(part) for part in (keys, values))
    return [prune_tokens(part, percent) for part, percent in zip(halves, sparsity, strict=True)]


def _halves(x):
    return x.to(torch.float16).to(torch.float32)


THIN = ["bfp4", "bfp8", "bfp:m4", "bfp:m2:hi4:initial0:local33", "bfp:m5:hi7:initial3:local40"]


@pytest.mark.parametrize("smoothed", [0, 4])
@pytest.mark.parametrize("name", THIN)
def test_what_is_left_out_is_zero_to_the_bit(name, smoothed, isa):
    format, (queries, keys, values) = parse_kv(name).bfp, tensors(200)
    options = {"smoothed_channels": smoothed}
    zeroed = (queries, *pruned(keys, values))
    expected = by_steps(BfpKvStore(format, 1, 2, 64, **options), *zeroed, sizes=200)
    thin = BfpKvStore(format, 1, 2, 64, sparsity=SPARSITY, **options)
    assert torch.equal(by_steps(thin, queries, keys, values, sizes=[1, 130, *[1] * 69]), expected)
    later = BfpKvStore(format, 1, 2, 64, sparsity=SPARSITY, **options)
    assert torch.equal(by_steps(later, queries, keys, values, sizes=[160, 40]), expected)
    whole = BfpKvStore(format, 1, 2, 64, **options)
    whole.append(keys, values)
    assert thin.nbytes < whole.nbytes


def test_the_first_of_equals_is_left_out():
    """And what is too small for a half is zero already, and among the smallest."""
    keys = torch.full((1, 2, 40, 32), 0.5) * torch.tensor([1.0, -1.0]).repeat(16)
    keys[0, 1, :, 3:5] = 1e-9
    queries = torch.ones(1, 2, 40, 32)
    sparse, plain = BfpKvStore(BFP4, 1, 2, 32, sparsity=(10, 0)), BfpKvStore(BFP4, 1, 2, 32)
    expected = keys.clone()
    expected[0, 0, :, :4] = 0  # six of 64: two are zero
    assert torch.equal(sparse.attend(queries, keys, keys, 0.1), plain.attend(queries, expected, keys, 0.1))


@pytest.mark.parametrize("name", THIN)
def test_thin_caches_are_shortened_chosen_and_saved_as_others(name):
    format = parse_kv(name).bfp
    arrays, more = tensors(230, batch=2), tensors(90, batch=2, seed=5)
    caches = [BfpKvStore(format, 2, 2, 64), BfpKvStore(format, 2, 2, 64, sparsity=SPARSITY)]
    token_mask = torch.ones(2, 230, dtype=torch.bool)
    token_mask[1, :50] = False
    for one, parts, later in (
        (caches[0], pruned(*arrays[1:]), pruned(*more[1:])),
        (caches[1], arrays[1:], more[1:]),
    ):
        one.append(*parts, token_mask)
        one.crop([229, 101])
        one.append(*(x[:, :, :1] for x in later))
        one.crop([65, 102])
        one.append(*(x[:, :, :40] for x in later))
        one.select([1, 0, 1])
    again = BfpKvStore(format, 3, 2, 64, sparsity=SPARSITY)
    again.restore(caches[1].lengths, caches[1].state())
    assert caches[1].lengths == caches[0].lengths == [142, 105, 142]
    state = caches[1].state()
    assert all(torch.equal(state[part], array) for part, array in caches[0].state().items())
    chosen = torch.tensor([1, 0, 1])
    rest = [x[chosen][:, :, 40:] for x in more]
    zeroed = [x[chosen][:, :, 40:] for x in pruned(*more[1:])]
    plain = caches[0].attend(rest[0], *zeroed, 0.125)
    thin, restored = (one.attend(*rest, 0.125) for one in (caches[1], again))
    assert torch.equal(plain, thin) and torch.equal(plain, restored)
    assert caches[1].nbytes <= caches[0].nbytes


def test_windows_keep_their_zeros():
    queries, keys, values = tensors(150, rows=1, heads=1)
    sparse = BfpKvStore(BFP4, 1, 1, 64, window=50, sparsity=SPARSITY)
    actual = by_steps(sparse, queries, keys, values, sizes=[70, 80])
    zeroed = pruned(keys, values)
    assert torch.equal(actual, by_steps(BfpKvStore(BFP4, 1, 1, 64, window=50), queries, *zeroed, sizes=150))


@pytest.mark.parametrize("name", ["bfp4+sparse:k30,v50", "bfp8+sparse:k30,v50", "bfp:m4+sparse:k50,v70"])
def test_memory_of_thin_caches_is_what_the_formula_says(name):
    """Or less: what block floating point rounds to zero is not stored either."""
    format = parse_kv(name)
    cache = kv_store(format, 1, 8, 128)
    generator = torch.Generator().manual_seed(0)
    cache.append(*(1 + torch.rand(1, 8, 4096, 128, generator=generator) for _ in range(2)))  # nothing rounds to zero
    formula = format.bits(4096) / 8 * 8 * 128
    assert 0.98 * formula <= cache.nbytes <= 1.03 * formula
    assert cache.nbytes < parse_kv(str(format.bfp)).bits(4096) / 8 * 8 * 128
