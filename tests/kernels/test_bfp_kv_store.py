"""Stores in block floating point: memory, padding, sequences, cropping, and states that are saved."""

import pytest
import torch
from tests.kernels.kv_cases import BFP4, BFP8, by_steps, causal_reference, tensors

from tilepress.formats import FormatError
from tilepress.formats.kv import KvBfp, parse_kv
from tilepress.kernels.kv_store import BfpKvStore, kv_store


@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_tensors_of_any_kind(name):
    """Plain ones are read where they lie, the rest are copied first."""
    queries, keys, values = tensors(40, batch=2)
    everything = torch.ones(2, 40, dtype=torch.bool)

    def strided(x):
        return x.transpose(2, 3).contiguous().transpose(2, 3)

    actual = [
        kv_store(parse_kv(name), 2, 2, 64).attend(*arguments)
        for arguments in (
            (queries, keys, values, 0.125),
            (queries, keys, values, 0.125, everything),
            (strided(queries), strided(keys), strided(values), 0.125),
            (queries, torch.nn.Parameter(keys), values.double(), 0.125),
        )
    ]
    assert all(torch.equal(one, actual[0]) for one in actual)


def test_padding_is_not_stored():
    queries, keys, values = tensors(50, batch=2)
    token_mask = torch.ones(2, 50, dtype=torch.bool)
    token_mask[1, :13] = False
    token_mask[1, 30] = False
    packed = BfpKvStore(BFP4, 2, 2, 64)
    actual = by_steps(packed, queries, keys, values, token_mask, sizes=[40, 1, 9])
    assert packed.lengths == [50, 36]
    assert torch.equal(actual[:1], causal_reference(queries[:1], keys[:1], values[:1], BFP4))
    real = [x[1:, :, token_mask[1]] for x in (queries, keys, values)]
    assert torch.equal(actual[1:, :, token_mask[1]], causal_reference(*real, BFP4))
    assert not actual[1:, :, ~token_mask[1]].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_in_halves_out(dtype):
    arrays = [x.to(dtype) for x in tensors(33)]
    actual = by_steps(BfpKvStore(BFP8, 1, 2, 64), *arrays, sizes=33)
    assert actual.dtype == dtype
    assert torch.equal(actual, causal_reference(*(x.float() for x in arrays), BFP8).to(dtype))


@pytest.mark.parametrize(("name", "limit"), [("bfp4", 3.05), ("bfp8", 1.748), ("bfp:m4", 3.1)])
def test_memory_is_what_the_formula_says(name, limit):
    format = parse_kv(name)
    packed = BfpKvStore(format.bfp, 1, 2, 64)
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(1, 2, 4000, 64, generator=generator)
    packed.append(keys, keys)
    for _ in range(96):
        packed.append(keys[:, :, :1], keys[:, :, :1])
    formula = format.bits(4096) / 8 * 2 * 64
    assert packed.lengths == [4096]
    assert formula <= packed.nbytes <= 1.03 * formula
    assert 2 * 2 * 2 * 64 * 4096 / packed.nbytes > limit / 1.03


@pytest.mark.parametrize("name", ["bfp4", "bfp8", "sparse:k30,v50", "bfp4+sparse:k30,v50"])
def test_growth_is_in_small_pieces_and_seldom(name):
    """To what the formula says, token by token, with memory asked for once in 64 tokens at most."""
    format = parse_kv(name)
    grown = kv_store(format, 1, 4, 128)
    token, sizes = torch.randn(1, 4, 1, 128, generator=torch.Generator().manual_seed(0)), []
    for _ in range(4096):
        grown.append(token, token)
        sizes.append(grown.nbytes)
    formula = format.bits(4096) / 8 * 4 * 128
    assert sizes[-1] <= 1.03 * formula
    changes = [at for at in range(1, 4096) if sizes[at] != sizes[at - 1]]
    assert len(changes) <= 2 * 4096 / 64  # a piece more, and zeros given back
    assert max(sizes[at] - sizes[at - 1] for at in changes) <= 0.04 * formula


def test_sequences_are_chosen_and_repeated():
    queries, keys, values = tensors(70, batch=3)
    whole = BfpKvStore(BFP4, 3, 2, 64).attend(queries, keys, values, 0.125)
    packed = BfpKvStore(BFP4, 3, 2, 64)
    packed.append(keys[:, :, :69], values[:, :, :69])
    order = [2, 0, 0, 1]
    packed.select(order)
    last = [x[order][:, :, 69:] for x in (queries, keys, values)]
    assert torch.equal(packed.attend(*last, 0.125), whole[order][:, :, 69:])


def test_cropped_tokens_leave_no_trace_where_nothing_was_truncated():
    queries, keys, values = tensors(80)
    expected = causal_reference(queries, keys, values, BFP8)
    packed = BfpKvStore(BFP8, 1, 2, 64)
    packed.append(keys[:, :, :75], values[:, :, :75])
    packed.crop([66])
    assert packed.lengths == [66]
    parts = [x[:, :, 66:] for x in (queries, keys, values)]
    assert torch.equal(packed.attend(*parts, 0.125), expected[:, :, 66:])


def test_a_deep_crop_goes_on_from_what_was_kept():
    queries, keys, values = tensors(160, heads=1, rows=1)
    packed = BfpKvStore(BFP4, 1, 1, 64)
    packed.append(keys, values)
    packed.crop([110])
    tail = [x[:, :, 110:] for x in (queries, keys, values)]
    actual = packed.attend(*tail, 0.125)
    # Tokens that were truncated to four bits meanwhile stay so: worse than bfp4, but no worse than if all were.
    exact, narrow = (causal_reference(queries, keys, values, format)[:, :, 110:] for format in (BFP8, KvBfp(4, 4)))
    assert (actual - exact).norm() < (narrow - exact).norm()
    packed.crop([0])
    assert packed.lengths == [0]
    again, fresh = (cache.attend(queries, keys, values, 0.125) for cache in (packed, BfpKvStore(BFP4, 1, 1, 64)))
    assert torch.equal(again, fresh)


@pytest.mark.parametrize("options", [{}, {"smoothed_channels": 4}, {"window": 40}])
@pytest.mark.parametrize("name", ["bfp4", "bfp8"])
@pytest.mark.parametrize("tokens", [0, 20, 139])
def test_state_is_saved_and_taken_up(tokens, name, options):
    format = parse_kv(name).bfp
    queries, keys, values = tensors(tokens + 9)
    packed, other = (BfpKvStore(format, 1, 2, 64, **options) for _ in range(2))
    if tokens:
        packed.append(keys[:, :, :tokens], values[:, :, :tokens])
    other.restore(packed.lengths, packed.state())
    parts = [x[:, :, tokens:] for x in (queries, keys, values)]
    assert torch.equal(other.attend(*parts, 0.125), packed.attend(*parts, 0.125))
    assert other.lengths == packed.lengths


def test_a_state_that_cannot_be_is_refused():
    packed = BfpKvStore(BFP4, 1, 2, 64)
    keys = torch.randn(1, 2, 100, 64)
    packed.append(keys, keys)
    state = packed.state()
    for lengths, change, why in [
        ([101, 3], {}, "2 sequences have more bytes than there are"),
        ([100] * 10**6, {}, "1000000 sequences have more bytes than there are"),
        ([-1], {}, "cannot have -1 tokens"),
        ([1 << 40], {}, "cannot have"),
        ([200], {}, "not the blocks of such sequences"),
        ([100], {"codes": state["codes"][:-1]}, "not the blocks of such sequences"),
        ([100], {"exponents": state["exponents"][:-1]}, "exponents has .* bytes, not"),
        ([100], {"ring": state["ring"][:7]}, "ring has 7 bytes"),
        ([100], {"more": state["ring"]}, "there are arrays that such a cache does not have"),
        ([100], {"smooth": torch.zeros(1, dtype=torch.uint8)}, "final offsets"),
    ]:
        with pytest.raises(ValueError, match=why):
            BfpKvStore(BFP4, 1, 2, 64).restore(lengths, {**state, **change})


def test_any_bytes_can_be_computed_with():
    """What arrays say can do no harm, whatever it is."""
    packed = BfpKvStore(BFP4, 1, 2, 64)
    queries, keys, values = tensors(100)
    packed.append(keys, values)
    generator = torch.Generator().manual_seed(0)
    noise = {
        name: torch.randint(0, 256, array.shape, generator=generator, dtype=torch.uint8)
        for name, array in packed.state().items()
        if name != "smooth"
    }
    packed.restore(packed.lengths, {**noise, "smooth": packed.state()["smooth"]})
    packed.attend(queries[:, :, :40], keys[:, :, :40], values[:, :, :40], 0.125)
    packed.crop([77])
    packed.attend(queries[:, :, :40], keys[:, :, :40], values[:, :, :40], 0.125)


def test_wrong_arguments():
    with pytest.raises(FormatError, match="heads of 80 channels cannot be cut in groups of 32"):
        BfpKvStore(BFP4, 1, 2, 80)
    with pytest.raises(FormatError, match="groups of 32, not 64"):
        BfpKvStore(KvBfp(4, 4, group=64), 1, 2, 64)
    packed = BfpKvStore(BFP4, 1, 2, 64)
    ok = torch.zeros(1, 2, 3, 64)
    with pytest.raises(ValueError, match="keys have 3 along axis 1, not 2"):
        packed.append(torch.zeros(1, 3, 3, 64), ok)
    with pytest.raises(ValueError, match="values have 4 along axis 2, not 3"):
        packed.append(ok, torch.zeros(1, 2, 4, 64))
    with pytest.raises(ValueError, match="must divide"):
        packed.attend(torch.zeros(1, 3, 3, 64), ok, ok, 1.0)
    with pytest.raises(ValueError, match="queries are"):
        packed.attend(torch.zeros(3, 64), ok, ok, 1.0)
    with pytest.raises(ValueError, match="must be finite"):
        packed.append(ok / 0, ok)
    with pytest.raises(ValueError, match="at least one token"):
        packed.append(ok[:, :, :0], ok[:, :, :0])
    with pytest.raises(ValueError, match="kept have 2 along axis 1"):
        packed.append(ok, ok, torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="no such sequence"):
        packed.select([1])
    with pytest.raises(ValueError, match="a length is wanted for each"):
        packed.crop([1, 2])
    assert packed.lengths == [0]
