"""Attention over packed caches: to the bit what the specification says, on every instruction set."""

from functools import cache, partial

import pytest
import torch

from tilepress.formats import FormatError
from tilepress.formats.kv import KvBfp, parse_kv
from tilepress.kernels import attention_reference as reference
from tilepress.kernels.kv_store import BfpKvStore, kv_store
from tilepress.nn.pruning import prune_tokens

BFP4 = parse_kv("bfp4").bfp
BFP8 = parse_kv("bfp8").bfp


def tensors(tokens, *, batch=1, heads=2, rows=2, channels=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, heads * rows, tokens, channels), (batch, heads, tokens, channels), (batch, heads, tokens, channels)
    queries, keys, values = (torch.randn(size, generator=generator) for size in shape)
    # Values whose exponents grow and shrink, so that groups are rounded anew; and an outlier.
    values *= torch.exp2(torch.randint(-6, 6, (tokens, 1), generator=generator).float())
    keys[..., 5] += 12.0
    return queries, keys, values


def expected(queries, keys, values, format, **options):
    """Every query over the tokens up to its own."""
    out = torch.empty_like(queries)
    rows = queries.shape[1] // keys.shape[1]
    window = options.pop("window", None)
    for b, h in [(b, h) for b in range(len(keys)) for h in range(keys.shape[1])]:
        for t in range(keys.shape[2]):
            first = max(0, t + 1 - window) if window else 0
            mine = slice(h * rows, (h + 1) * rows)
            out[b, mine, t] = reference.attend(
                queries[b, mine, t], keys[b, h, : t + 1], values[b, h, : t + 1], format, 0.125, first=first, **options
            )
    return out


def by_steps(packed, queries, keys, values, kept=None, sizes=None):
    out = []
    for part in torch.arange(keys.shape[2]).split(sizes or 1):
        chosen = None if kept is None else kept[:, part]
        out.append(packed.attend(queries[:, :, part], keys[:, :, part], values[:, :, part], 0.125, chosen))
    return torch.cat(out, 2)


@cache
def case(name, tokens, rows=2, channels=64, **options):
    """Tensors of one head and what attention to them is: the same for every instruction set."""
    arrays = tensors(tokens, heads=1, rows=rows, channels=channels)
    return arrays, expected(*arrays, parse_kv(name).bfp, **options)


FORMATS = [
    "bfp4",
    "bfp8",
    "bfp:m4",
    "bfp:m3:hi6:initial7:local5",
    "bfp:m2:hi4:initial0:local33",
    "bfp:m5:hi7:initial3:local0",
]


@pytest.mark.parametrize("name", FORMATS)
def test_every_bit_is_the_specifications(name, isa):
    arrays, wanted = case(name, 115)
    format = parse_kv(name).bfp
    assert torch.equal(by_steps(BfpKvStore(format, 1, 1, 64), *arrays), wanted)
    assert torch.equal(by_steps(BfpKvStore(format, 1, 1, 64), *arrays, sizes=[1, 50, 1, 1, 56, 6]), wanted)


@pytest.mark.parametrize("smoothed", [0, 4])
@pytest.mark.parametrize("name", ["bfp4", "bfp8", "bfp:m1:hi8:initial2:local9"])
def test_numbers_of_any_size_are_rounded_so(name, smoothed, isa):
    """FP16's subnormal numbers and what is too small or too large for it, zeros, halves of a last place."""
    format = parse_kv(name).bfp
    queries, keys, values = tensors(70, heads=1, seed=5)
    generator = torch.Generator().manual_seed(6)
    awkward = [2.0**-25, -(2.0**-25), 65519.0, -70000.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1e30]
    for x in (keys, values):
        x *= torch.exp2(torch.randint(-30, 18, x.shape, generator=generator).float())
        x[torch.rand(x.shape, generator=generator) < 0.1] = 0.0
        x[torch.rand(x.shape, generator=generator) < 0.1] = -0.0
        x[..., 7] = torch.tensor(awkward).repeat(10)
    wanted = expected(queries, keys, values, format, smoothed_channels=smoothed)
    packed = BfpKvStore(format, 1, 1, 64, smoothed_channels=smoothed)
    assert torch.equal(by_steps(packed, queries, keys, values), wanted)


@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_tensors_of_any_kind(name):
    """Plain ones are read where they lie, others are copied first."""
    queries, keys, values = tensors(40, batch=2)
    everything = torch.ones(2, 40, dtype=torch.bool)

    def strided(x):
        return x.transpose(2, 3).contiguous().transpose(2, 3)

    found = [
        kv_store(parse_kv(name), 2, 2, 64).attend(*arguments)
        for arguments in (
            (queries, keys, values, 0.125),
            (queries, keys, values, 0.125, everything),
            (strided(queries), strided(keys), strided(values), 0.125),
            (queries, torch.nn.Parameter(keys), values.double(), 0.125),
        )
    ]
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9])
def test_any_number_of_heads_shares_keys(rows, isa):
    arrays, wanted = case("bfp8", 40, rows, 32)
    assert torch.equal(by_steps(BfpKvStore(BFP8, 1, 1, 32), *arrays, sizes=40), wanted)


BOUNDARIES = [1, 2, 3, 31, 32, 33, 63, 64, 65, 66, 95, 96, 97, 98, 127, 128, 129, 161, 192, 225, 256, 257, 299, 300]


@pytest.mark.parametrize(
    ("channels", "rows"), [(32, 8), (64, 1), (64, 3), (96, 6), (128, 4), (128, 7), (256, 2), (288, 5)]
)
@pytest.mark.parametrize("name", ["bfp4", "bfp:m2:hi7:initial33:local31"])
def test_heads_of_any_size_at_every_boundary(channels, rows, name, isa):
    """Tokens come one by one or many at once, such that those after which a block or window ends are looked at."""
    queries, keys, values = tensors(BOUNDARIES[-1], heads=1, rows=rows, channels=channels, seed=channels + rows)
    format = parse_kv(name).bfp
    packed = BfpKvStore(format, 1, 1, channels)
    for before, length in zip([0, *BOUNDARIES], BOUNDARIES, strict=False):
        found = packed.attend(*(x[:, :, before:length] for x in (queries, keys, values)), 0.125)
        own = (queries[0, :, length - 1], keys[0, 0, :length], values[0, 0, :length])
        assert torch.equal(found[0, :, -1], reference.attend(*own, format, 0.125)), length


@pytest.mark.parametrize("rows", range(1, 9))
def test_queries_at_the_ends_of_their_range(rows, isa):
    """Every byte that stands for queries is used up to its last bit."""
    generator = torch.Generator().manual_seed(rows)
    queries, keys, values = tensors(40, rows=rows, heads=1, channels=64)
    magnitudes = torch.tensor([255.0, 254.0, 253.0, 129.0, 128.0, 127.0, 1.0, 0.0])
    chosen = torch.randint(0, len(magnitudes), queries.shape, generator=generator)
    signs = torch.randint(0, 2, queries.shape, generator=generator) * 2 - 1
    arrays = (magnitudes[chosen] * signs / 128, keys, values)
    assert torch.equal(by_steps(BfpKvStore(BFP4, 1, 1, 64), *arrays, sizes=[39, 1]), expected(*arrays, BFP4))


def test_values_of_all_magnitudes():
    queries, keys, values = tensors(70, heads=1)
    generator = torch.Generator().manual_seed(1)
    for part in (queries, keys, values):
        part *= torch.exp2(torch.randint(-24, 15, part.shape, generator=generator).float())
    arrays = (queries, keys, values)
    found = BfpKvStore(BFP4, 1, 1, 64).attend(*arrays, 1e-9)
    wanted = torch.stack(
        [reference.attend(queries[0, :, t], keys[0, 0, : t + 1], values[0, 0, : t + 1], BFP4, 1e-9) for t in range(70)]
    )
    assert torch.equal(found[0], wanted.transpose(0, 1))


def test_long_contexts_are_cut_in_segments():
    queries, keys, values = tensors(2300, rows=1, heads=1, channels=32)
    packed = BfpKvStore(BFP4, 1, 1, 32)
    packed.append(keys[:, :, :-1], values[:, :, :-1])
    found = [packed.attend(queries[:, :, -1:], keys[:, :, -1:], values[:, :, -1:], 0.125, threads=2)]
    other = BfpKvStore(BFP4, 1, 1, 32)
    other.append(keys[:, :, :-2], values[:, :, :-2])
    found.append(other.attend(queries[:, :, -2:], keys[:, :, -2:], values[:, :, -2:], 0.125, threads=1)[:, :, 1:])
    wanted = reference.attend(queries[0, :, -1], keys[0, 0], values[0, 0], BFP4, 0.125)
    assert torch.equal(found[0][0, :, 0], wanted) and torch.equal(found[1][0, :, 0], wanted)


def test_windows(isa):
    arrays, wanted = case("bfp4", 190, 1, 32, window=50)
    packed = BfpKvStore(BFP4, 1, 1, 32, window=50)
    assert torch.equal(by_steps(packed, *arrays, sizes=[1, 100, 1, 88]), wanted)
    assert packed.nbytes < 6 * 32 * 32 * 2 * 2  # blocks that nobody sees any more are given back


@pytest.mark.parametrize("sizes", [1, [20, 1, 80], [101]])
def test_offsets_of_keys(sizes):
    arrays = tensors(101, heads=1)
    packed = BfpKvStore(BFP4, 1, 1, 64, smoothed_channels=4)
    assert torch.equal(by_steps(packed, *arrays, sizes=sizes), expected(*arrays, BFP4, smoothed_channels=4))


@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("name", ["bfp4", "bfp8"])
def test_tokens_of_a_prompt_that_are_multiplied_together(name, rows, window):
    """As several are where few heads of queries share keys: each has the bits that it has alone."""
    arrays = tensors(230, batch=2, heads=1, rows=rows, channels=32)
    make = partial(BfpKvStore, parse_kv(name).bfp, 2, 1, 32, window=window, smoothed_channels=2)
    wanted = by_steps(make(), *arrays, sizes=1)
    assert torch.equal(by_steps(make(), *arrays, sizes=230), wanted)
    assert torch.equal(by_steps(make(), *arrays, sizes=[150, 3, 70, 7]), wanted)


@pytest.mark.parametrize(
    ("name", "rows", "channels", "window"),
    [
        ("bfp4", 20, 32, None),
        ("bfp8", 4, 64, None),
        ("bfp8", 9, 96, 70),
        ("bfp:m3:hi6:initial7:local5", 16, 64, None),
        ("bfp:m4", 2, 288, None),
    ],
)
def test_many_rows_at_a_time(name, rows, channels, window, isa):
    """As matrix units take them, or code that does the same: of many heads, and of many tokens."""
    arrays, wanted = case(name, 170, rows, channels, window=window)
    packed = partial(BfpKvStore, parse_kv(name).bfp, 1, 1, channels, window=window)
    assert torch.equal(by_steps(packed(), *arrays, sizes=[90, 1, 79]), wanted)
    assert torch.equal(by_steps(packed(), *arrays, sizes=[40, 4, 126]), wanted)


def test_padding_is_not_stored():
    queries, keys, values = tensors(50, batch=2)
    kept = torch.ones(2, 50, dtype=torch.bool)
    kept[1, :13] = False
    kept[1, 30] = False
    packed = BfpKvStore(BFP4, 2, 2, 64)
    found = by_steps(packed, queries, keys, values, kept, sizes=[40, 1, 9])
    assert packed.lengths == [50, 36]
    assert torch.equal(found[:1], expected(queries[:1], keys[:1], values[:1], BFP4))
    real = [x[1:, :, kept[1]] for x in (queries, keys, values)]
    assert torch.equal(found[1:, :, kept[1]], expected(*real, BFP4))
    assert not found[1:, :, ~kept[1]].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_in_halves_out(dtype):
    arrays = [x.to(dtype) for x in tensors(33)]
    found = by_steps(BfpKvStore(BFP8, 1, 2, 64), *arrays, sizes=33)
    assert found.dtype == dtype
    assert torch.equal(found, expected(*(x.float() for x in arrays), BFP8).to(dtype))


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
    wanted = expected(queries, keys, values, BFP8)
    packed = BfpKvStore(BFP8, 1, 2, 64)
    packed.append(keys[:, :, :75], values[:, :, :75])
    packed.crop([66])
    assert packed.lengths == [66]
    parts = [x[:, :, 66:] for x in (queries, keys, values)]
    assert torch.equal(packed.attend(*parts, 0.125), wanted[:, :, 66:])


def test_a_deep_crop_goes_on_from_what_was_kept():
    queries, keys, values = tensors(160, heads=1, rows=1)
    packed = BfpKvStore(BFP4, 1, 1, 64)
    packed.append(keys, values)
    packed.crop([110])
    tail = [x[:, :, 110:] for x in (queries, keys, values)]
    found = packed.attend(*tail, 0.125)
    # Tokens that were truncated to four bits meanwhile stay so: worse than bfp4, but no worse than if all were.
    exact, narrow = (expected(queries, keys, values, format)[:, :, 110:] for format in (BFP8, KvBfp(4, 4)))
    assert (found - exact).norm() < (narrow - exact).norm()
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
    wanted = by_steps(BfpKvStore(format, 1, 2, 64, **options), *zeroed, sizes=200)
    thin = BfpKvStore(format, 1, 2, 64, sparsity=SPARSITY, **options)
    assert torch.equal(by_steps(thin, queries, keys, values, sizes=[1, 130, *[1] * 69]), wanted)
    later = BfpKvStore(format, 1, 2, 64, sparsity=SPARSITY, **options)
    assert torch.equal(by_steps(later, queries, keys, values, sizes=[160, 40]), wanted)
    whole = BfpKvStore(format, 1, 2, 64, **options)
    whole.append(keys, values)
    assert thin.nbytes < whole.nbytes


def test_the_first_of_equals_is_left_out():
    """And what is too small for a half is zero already, and among the smallest."""
    keys = torch.full((1, 2, 40, 32), 0.5) * torch.tensor([1.0, -1.0]).repeat(16)
    keys[0, 1, :, 3:5] = 1e-9
    queries = torch.ones(1, 2, 40, 32)
    sparse, plain = BfpKvStore(BFP4, 1, 2, 32, sparsity=(10, 0)), BfpKvStore(BFP4, 1, 2, 32)
    wanted = keys.clone()
    wanted[0, 0, :, :4] = 0  # six of 64: two are zero
    assert torch.equal(sparse.attend(queries, keys, keys, 0.1), plain.attend(queries, wanted, keys, 0.1))


@pytest.mark.parametrize("name", THIN)
def test_thin_caches_are_shortened_chosen_and_saved_as_others(name):
    format = parse_kv(name).bfp
    arrays, more = tensors(230, batch=2), tensors(90, batch=2, seed=5)
    caches = [BfpKvStore(format, 2, 2, 64), BfpKvStore(format, 2, 2, 64, sparsity=SPARSITY)]
    kept = torch.ones(2, 230, dtype=torch.bool)
    kept[1, :50] = False
    for one, parts, later in (
        (caches[0], pruned(*arrays[1:]), pruned(*more[1:])),
        (caches[1], arrays[1:], more[1:]),
    ):
        one.append(*parts, kept)
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
    found = by_steps(sparse, queries, keys, values, sizes=[70, 80])
    zeroed = pruned(keys, values)
    assert torch.equal(found, by_steps(BfpKvStore(BFP4, 1, 1, 64, window=50), queries, *zeroed, sizes=150))


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
