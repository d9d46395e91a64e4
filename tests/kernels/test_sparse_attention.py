"""Attention over sparse caches: what the specification says, on every instruction set; and every byte accounted for."""

import copy
import functools

import pytest
import torch
from tests.kernels.kv_cases import by_steps

from tilepress.formats import FormatError
from tilepress.formats.kv import parse_kv
from tilepress.kernels import attention_reference as reference
from tilepress.kernels.kv_store import SparseKvStore

K30V50 = parse_kv("sparse:k30,v50")


def tensors(tokens, *, batch=1, heads=2, rows=2, channels=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, n, tokens, channels) for n in (heads * rows, heads, heads)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def causal_reference(queries, keys, values, format, window=None):
    """Every query over the tokens up to its own."""
    out = torch.empty_like(queries)
    for b, t in [(b, t) for b in range(len(keys)) for t in range(keys.shape[2])]:
        mine = queries[b, :, t].reshape(keys.shape[1], -1, keys.shape[3])
        first = max(0, t + 1 - window) if window else 0
        actual = reference.attend_sparse(mine, keys[b, :, : t + 1], values[b, :, : t + 1], format, 0.125, first=first)
        out[b, :, t] = actual.flatten(0, 1)
    return out


@functools.cache
def case(name, tokens, window=None, **options):
    """Tensors, and what attention to them is: the same for every instruction set."""
    arrays = tensors(tokens, **options)
    return arrays, causal_reference(*arrays, parse_kv(name), window)


def assert_near(actual, expected, of=1.0):
    """Within what sums of a few thousand float32 products can be off; values are about `of`."""
    assert (actual - expected).abs().max() <= 2e-6 * of


@pytest.mark.parametrize("name", ["sparse:k30,v50", "bf16+sparse:k30,v50", "sparse:k0,v99", "sparse:k71,v0"])
def test_it_is_what_the_specification_says(name, isa):
    format, (arrays, expected) = parse_kv(name), case(name, 115)
    actual = by_steps(SparseKvStore(format, 1, 2, 32), *arrays)
    assert_near(actual, expected)
    _, dense = case(f"{format.number}+sparse:k0,v0", 115)
    assert (dense - expected).abs().max() > 0.01  # what is left out counts


@pytest.mark.parametrize("name", ["sparse:k30,v50", "bf16+sparse:k30,v50"])
def test_calls_and_threads_change_no_bit(name, isa):
    arrays = tensors(180)
    expected = by_steps(SparseKvStore(parse_kv(name), 1, 2, 32), *arrays, threads=1)
    for sizes, threads in (([1, 50, 1, 1, 127], 1), ([180], 2), ([32, 64, 84], 2), ([1] * 180, 2)):
        actual = by_steps(SparseKvStore(parse_kv(name), 1, 2, 32), *arrays, sizes=sizes, threads=threads)
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(("rows", "channels"), [(1, 16), (3, 64), (4, 48), (5, 32), (9, 128)])
def test_any_number_of_heads_shares_keys(rows, channels, isa):
    arrays, expected = case("sparse:k30,v50", 70, rows=rows, channels=channels, heads=1)
    assert_near(by_steps(SparseKvStore(K30V50, 1, 1, channels), *arrays, sizes=70), expected)


def test_values_of_all_magnitudes(isa):
    """Subnormal halves, halves that are too large, zeros of both signs and equals, of which the first are left out."""
    queries, keys, values = tensors(100, heads=1, rows=1)
    generator = torch.Generator().manual_seed(1)
    for part in (keys, values):
        part *= torch.exp2(torch.randint(-26, 18, part.shape, generator=generator).float())
        part[torch.rand(part.shape, generator=generator) < 0.3] = 0.0
        part[torch.rand(part.shape, generator=generator) < 0.1] = -0.0
        part[torch.rand(part.shape, generator=generator) < 0.3] = 0.5
    format, arrays = parse_kv("sparse:k50,v80"), (queries * 1e-5, keys, values)
    assert_near(
        by_steps(SparseKvStore(format, 1, 1, 32), *arrays, sizes=100), causal_reference(*arrays, format), of=65504
    )


def test_long_contexts_are_cut_in_segments(isa):
    queries, keys, values = tensors(2300, rows=1, heads=1)
    cache = SparseKvStore(K30V50, 1, 1, 32)
    cache.append(keys[:, :, :-1], values[:, :, :-1])
    actual = cache.attend(queries[:, :, -1:], keys[:, :, -1:], values[:, :, -1:], 0.125)
    assert_near(actual[0, :, 0], reference.attend_sparse(queries[0, :, -1:], keys[0], values[0], K30V50, 0.125)[:, 0])


def test_windows(isa):
    arrays, expected = case("sparse:k30,v50", 190, window=50, rows=1, heads=1)
    store = SparseKvStore(K30V50, 1, 1, 32, window=50)
    assert_near(by_steps(store, *arrays, sizes=[1, 100, 1, 88]), expected)
    assert store.nbytes < 6 * 32 * 32 * 2 * 2  # blocks that nobody sees any more are given back


def test_padding_is_not_stored():
    queries, keys, values = tensors(50, batch=2)
    token_mask = torch.ones(2, 50, dtype=torch.bool)
    token_mask[1, :13] = token_mask[1, 30] = token_mask[1, 49] = False
    cache = SparseKvStore(K30V50, 2, 2, 32)
    actual = by_steps(cache, queries, keys, values, token_mask, sizes=[40, 1, 8, 1])
    assert cache.lengths == [50, 35]
    assert_near(actual[:1], causal_reference(queries[:1], keys[:1], values[:1], K30V50))
    real = [x[1:, :, token_mask[1]] for x in (queries, keys, values)]
    assert_near(actual[1:, :, token_mask[1]], causal_reference(*real, K30V50))
    assert not actual[1:, :, ~token_mask[1]].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_in_halves_out(dtype):
    arrays = [x.to(dtype) for x in tensors(33)]
    actual = by_steps(SparseKvStore(K30V50, 1, 2, 32), *arrays, sizes=33)
    assert actual.dtype == dtype
    whole = by_steps(SparseKvStore(K30V50, 1, 2, 32), *(x.float() for x in arrays), sizes=33)
    assert torch.equal(actual, whole.to(dtype))


@pytest.mark.parametrize("name", ["sparse:k30,v50", "bf16+sparse:k50,v70", "sparse:k0,v70"])
def test_memory_is_what_the_formula_says(name):
    format = parse_kv(name)
    cache = SparseKvStore(format, 1, 8, 64)
    _, keys, values = tensors(4000, rows=1, heads=8, channels=64)
    cache.append(keys, values)
    for _ in range(96):
        cache.append(keys[:, :, :1], values[:, :, :1])
    formula = format.bits(4096) / 8 * 8 * 64
    assert formula <= cache.nbytes <= 1.03 * formula
    assert cache.nbytes < 4096 * 8 * 64 * 2 * 2 * 0.75


def test_growth_is_a_block_at_a_time():
    _, keys, values = tensors(300, rows=1)
    cache = SparseKvStore(K30V50, 1, 2, 32)
    sizes = []
    for token in range(300):
        cache.append(keys[:, :, token : token + 1], values[:, :, token : token + 1])
        sizes.append(cache.nbytes)
    assert len(set(sizes)) == 1 + 300 // 64 + 1


def test_sequences_are_chosen_and_copied():
    queries, keys, values = tensors(80, batch=3)
    whole = SparseKvStore(K30V50, 3, 2, 32).attend(queries, keys, values, 0.125)
    cache = SparseKvStore(K30V50, 3, 2, 32)
    cache.append(keys[:, :, :70], values[:, :, :70])
    twin = copy.deepcopy(cache)
    cache.select([2, 0, 2, 1])
    order = torch.tensor([2, 0, 2, 1])
    rest = [x[order][:, :, 70:] for x in (queries, keys, values)]
    assert torch.equal(cache.attend(*rest, 0.125), whole[order][:, :, 70:])
    assert twin.lengths == [70] * 3
    rest = [x[:, :, 70:] for x in (queries, keys, values)]
    assert torch.equal(twin.attend(*rest, 0.125), whole[:, :, 70:])


@pytest.mark.parametrize("length", [100, 96, 95, 64, 40, 0])
def test_a_shortened_cache_goes_on_from_what_was_kept(length):
    """Blocks that were full stay thin, and are full again with what comes."""
    queries, keys, values = tensors(101)
    cache = SparseKvStore(K30V50, 1, 2, 32)
    cache.append(keys[:, :, :100], values[:, :, :100])
    cache.crop([length])
    assert cache.lengths == [length]
    thin = [
        torch.cat([reference.pruned_blocks(x[0, :, :97].half(), p).float(), x[0, :, 97:]], 1)
        for x, p in ((keys, 30), (values, 50))
    ]
    thin = [x[None, :, :length] for x in thin]
    rest = tensors(50, seed=1)
    actual = by_steps(cache, *rest, sizes=[1, 49])
    both = [torch.cat([old, new], 2) for old, new in zip((queries[:, :, :length], *thin), rest, strict=True)]
    assert_near(actual, causal_reference(*both, K30V50)[:, :, length:])


@pytest.mark.parametrize(("tokens", "options"), [(100, {}), (20, {}), (200, {"window": 40})])
def test_a_saved_state_is_the_same_cache(tokens, options):
    queries, keys, values = tensors(tokens + 40)
    cache, other = (SparseKvStore(K30V50, 1, 2, 32, **options) for _ in range(2))
    cache.append(keys[:, :, :tokens], values[:, :, :tokens])
    other.restore(cache.lengths, cache.state())
    rest = [x[:, :, tokens:] for x in (queries, keys, values)]
    assert torch.equal(cache.attend(*rest, 0.125), other.attend(*rest, 0.125))


def test_a_state_that_cannot_be_is_refused():
    cache = SparseKvStore(K30V50, 1, 2, 32)
    _, keys, values = tensors(100)
    cache.append(keys, values)
    state = cache.state()
    everything = torch.full_like(state["masks"], 255)
    infinite = torch.tensor([0x00, 0x7C] * (len(state["values"]) // 2), dtype=torch.uint8)
    endless = torch.tensor([0x00, 0x7C] * (len(state["open"]) // 2), dtype=torch.uint8)
    for lengths, change, why in [
        ([100, 100], {}, "which are not the blocks"),
        ([100] * 10**6, {}, "1000000 sequences have more bytes than there are"),
        ([-1], {}, "cannot have -1 tokens"),
        ([2**40], {}, "cannot have"),
        ([128], {}, "which are not the blocks"),
        ([90], {}, "which are not the blocks"),
        ([100], {"masks": state["masks"][:-1]}, "which are not the blocks"),
        ([100], {"masks": state["masks"][:0]}, "which are not the blocks"),
        ([100], {"masks": everything}, "masks ask for more values than a block has"),
        ([100], {"values": state["values"][:-2]}, "values has .* bytes, not"),
        ([100], {"values": infinite}, "values are not finite"),
        ([100], {"open": endless}, "open has values that are not finite"),
        ([100], {"open": state["open"][:7]}, "open has 7 bytes"),
        ([100], {"more": state["open"]}, "there are arrays that such a cache does not have"),
    ]:
        with pytest.raises(ValueError, match=why):
            SparseKvStore(K30V50, 1, 2, 32).restore(lengths, {**state, **change})


def test_any_masks_that_ask_for_no_more_can_be_computed_with(isa):
    """What arrays say can do no harm: masks that keep other values than they were made with, up to the last."""
    cache = SparseKvStore(K30V50, 1, 2, 32)
    queries, keys, values = tensors(100)
    cache.append(keys, values)
    state = cache.state()
    generator = torch.Generator().manual_seed(0)
    masks = state["masks"].view(3, 2, 2, 128)  # blocks, heads, keys or values, bytes
    state["masks"] = masks[:, :, :, torch.randperm(128, generator=generator)].flatten()
    cache.restore([100], state)
    assert cache.attend(queries[:, :, :40], keys[:, :, :40], values[:, :, :40], 0.125).isfinite().all()
    cache.crop([77])
    assert cache.attend(queries[:, :, :40], keys[:, :, :40], values[:, :, :40], 0.125).isfinite().all()


def test_wrong_arguments():
    with pytest.raises(FormatError, match="heads of 24 channels cannot be cut in lanes of 16"):
        SparseKvStore(K30V50, 1, 2, 24)
    with pytest.raises(FormatError, match="a sparse cache holds fp16 or bf16, not bfp4"):
        SparseKvStore(parse_kv("bfp4+sparse:k30,v50"), 1, 2, 32)
    cache = SparseKvStore(K30V50, 1, 2, 32)
    ok = torch.zeros(1, 2, 3, 32)
    for call, why in [
        (lambda: cache.append(torch.zeros(1, 3, 3, 32), ok), "keys have 3 along axis 1, not 2"),
        (lambda: cache.attend(torch.zeros(1, 3, 3, 32), ok, ok, 1.0), "must divide"),
        (lambda: cache.append(ok / 0, ok), "must be finite"),
        (lambda: cache.append(ok[:, :, :0], ok[:, :, :0]), "at least one token"),
        (lambda: cache.append(ok, ok, torch.ones(1, 2, dtype=torch.bool)), "kept have 2 along axis 1"),
        (lambda: cache.select([1]), "no such sequence"),
        (lambda: cache.crop([1, 2]), "a length is wanted for each"),
    ]:
        with pytest.raises(ValueError, match=why):
            call()
    assert cache.lengths == [0]
