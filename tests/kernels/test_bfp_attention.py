"""Attention over block floating point: to the bit what the specification says, on every instruction set."""

from functools import cache, partial

import pytest
import torch
from tests.kernels.kv_cases import BFP4, BFP8, by_steps, case, causal_reference, tensors

from tilepress.formats.kv import parse_kv
from tilepress.kernels import attention_reference as reference
from tilepress.kernels.attention_reference import Softmax
from tilepress.kernels.kv_store import BfpKvStore, kv_store

SOFTMAXES = {
    "capped": lambda rows: Softmax(softcap=2.5),
    "sinks": lambda rows: Softmax(sinks=torch.linspace(-3.0, 8.0, rows)),
    "both": lambda rows: Softmax(0.75, torch.linspace(8.0, -3.0, rows)),
}


@cache
def softmax_case(name, kind, rows):
    """Tensors of one head, what is done with scores, and what attention is then."""
    format, arrays = parse_kv(name), tensors(110, heads=1, rows=rows, channels=32)
    softmax = SOFTMAXES[kind](rows)
    return arrays, softmax, causal_reference(*arrays, format.bfp, rotated=format.rotated, softmax=softmax)


FORMATS = [
    "bfp4",
    "bfp8",
    "bfp:m4",
    "bfp:m3:hi6:initial7:local5",
    "bfp:m2:hi4:initial0:local33",
    "bfp:m5:hi7:initial3:local0",
    "bfp4n",
    "bfp:m4:near",
    "bfp:m2:near:hi8:initial3:local5",
    "bfp4+rotate",
    "bfp4n+rotate",
]


def store(name, channels=64, heads=1, **options):
    return kv_store(parse_kv(name), 1, heads, channels, **options)


@pytest.mark.parametrize("name", FORMATS)
def test_every_bit_is_the_specifications(name, isa):
    arrays, expected = case(name, 115)
    assert torch.equal(by_steps(store(name), *arrays), expected)
    assert torch.equal(by_steps(store(name), *arrays, sizes=[1, 50, 1, 1, 56, 6]), expected)


@cache
def awkward_case(name, smoothed):
    """FP16's subnormal numbers and what is too small or too large for it, zeros, halves of a last place; options of a
    store, and what attention is then."""
    format = parse_kv(name)
    queries, keys, values = tensors(70, heads=1, seed=5)
    generator = torch.Generator().manual_seed(6)
    awkward = [2.0**-25, -(2.0**-25), 65519.0, -70000.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1e30]
    for x in (keys, values):
        x *= torch.exp2(torch.randint(-30, 18, x.shape, generator=generator).float())
        x[torch.rand(x.shape, generator=generator) < 0.1] = 0.0
        x[torch.rand(x.shape, generator=generator) < 0.1] = -0.0
        x[..., 7] = torch.tensor(awkward).repeat(10)
    options = {"smoothed_channels": smoothed, "rotated": format.rotated}
    arrays = (queries, keys, values)
    return arrays, options, causal_reference(*arrays, format.bfp, **options)


@pytest.mark.parametrize("smoothed", [0, 4])
@pytest.mark.parametrize(
    "name", ["bfp4", "bfp8", "bfp:m1:hi8:initial2:local9", "bfp:m2:near:hi8:initial2:local9+rotate"]
)
def test_numbers_of_any_size_are_rounded_so(name, smoothed, isa):
    arrays, options, expected = awkward_case(name, smoothed)
    assert torch.equal(by_steps(BfpKvStore(parse_kv(name).bfp, 1, 1, 64, **options), *arrays), expected)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 9])
def test_any_number_of_heads_shares_keys(rows, isa):
    arrays, expected = case("bfp8", 40, rows, 32)
    assert torch.equal(by_steps(BfpKvStore(BFP8, 1, 1, 32), *arrays, sizes=40), expected)


BOUNDARIES = [1, 2, 3, 31, 32, 33, 63, 64, 65, 66, 95, 96, 97, 98, 127, 128, 129, 161, 192, 225, 256, 257, 299, 300]


@cache
def boundary_case(name, channels, rows):
    """Tensors of one head, and attention of the last token before each boundary."""
    arrays = tensors(BOUNDARIES[-1], heads=1, rows=rows, channels=channels, seed=channels + rows)
    (queries,), ((keys,),), ((values,),) = arrays
    attend = partial(reference.attend, format=parse_kv(name).bfp, scaling=0.125, rotated=parse_kv(name).rotated)
    return arrays, [attend(queries[:, length - 1], keys[:length], values[:length]) for length in BOUNDARIES]


@pytest.mark.parametrize(
    ("channels", "rows"), [(32, 8), (64, 1), (64, 3), (96, 6), (128, 4), (128, 7), (256, 2), (288, 5)]
)
@pytest.mark.parametrize("name", ["bfp4", "bfp:m2:hi7:initial33:local31", "bfp:m4:near:hi8:initial33:local31+rotate"])
def test_heads_of_any_size_at_every_boundary(channels, rows, name, isa):
    """Tokens come one by one or many at once, such that those after which a block or window ends are looked at."""
    arrays, expected = boundary_case(name, channels, rows)
    packed = store(name, channels)
    for before, length, last in zip([0, *BOUNDARIES], BOUNDARIES, expected, strict=False):
        actual = packed.attend(*(x[:, :, before:length] for x in arrays), 0.125)
        assert torch.equal(actual[0, :, -1], last), length


@cache
def largest_queries(rows):
    """Tensors of one head and what attention to them is: every byte that stands for queries is used up to its last
    bit."""
    generator = torch.Generator().manual_seed(rows)
    queries, keys, values = tensors(40, rows=rows, heads=1, channels=64)
    magnitudes = torch.tensor([255.0, 254.0, 253.0, 129.0, 128.0, 127.0, 1.0, 0.0])
    chosen = torch.randint(0, len(magnitudes), queries.shape, generator=generator)
    signs = torch.randint(0, 2, queries.shape, generator=generator) * 2 - 1
    arrays = (magnitudes[chosen] * signs / 128, keys, values)
    return arrays, causal_reference(*arrays, BFP4)


@pytest.mark.parametrize("rows", range(1, 9))
def test_queries_at_the_ends_of_their_range(rows, isa):
    arrays, expected = largest_queries(rows)
    assert torch.equal(by_steps(BfpKvStore(BFP4, 1, 1, 64), *arrays, sizes=[39, 1]), expected)


def test_values_of_all_magnitudes():
    queries, keys, values = tensors(70, heads=1)
    generator = torch.Generator().manual_seed(1)
    for part in (queries, keys, values):
        part *= torch.exp2(torch.randint(-24, 15, part.shape, generator=generator).float())
    arrays = (queries, keys, values)
    actual = BfpKvStore(BFP4, 1, 1, 64).attend(*arrays, 1e-9)
    expected = torch.stack(
        [reference.attend(queries[0, :, t], keys[0, 0, : t + 1], values[0, 0, : t + 1], BFP4, 1e-9) for t in range(70)]
    )
    assert torch.equal(actual[0], expected.transpose(0, 1))


def test_long_contexts_are_cut_in_segments():
    queries, keys, values = tensors(2300, rows=1, heads=1, channels=32)
    packed = BfpKvStore(BFP4, 1, 1, 32)
    packed.append(keys[:, :, :-1], values[:, :, :-1])
    actual = [packed.attend(queries[:, :, -1:], keys[:, :, -1:], values[:, :, -1:], 0.125, threads=2)]
    other = BfpKvStore(BFP4, 1, 1, 32)
    other.append(keys[:, :, :-2], values[:, :, :-2])
    actual.append(other.attend(queries[:, :, -2:], keys[:, :, -2:], values[:, :, -2:], 0.125, threads=1)[:, :, 1:])
    expected = reference.attend(queries[0, :, -1], keys[0, 0], values[0, 0], BFP4, 0.125)
    assert torch.equal(actual[0][0, :, 0], expected) and torch.equal(actual[1][0, :, 0], expected)


def test_windows(isa):
    arrays, expected = case("bfp4", 190, 1, 32, window=50)
    packed = BfpKvStore(BFP4, 1, 1, 32, window=50)
    assert torch.equal(by_steps(packed, *arrays, sizes=[1, 100, 1, 88]), expected)
    assert packed.nbytes < 6 * 32 * 32 * 2 * 2  # blocks that nobody sees any more are given back


@pytest.mark.parametrize("sizes", [1, [20, 1, 80], [101]])
def test_offsets_of_keys(sizes):
    arrays = tensors(101, heads=1)
    packed = BfpKvStore(BFP4, 1, 1, 64, smoothed_channels=4)
    assert torch.equal(by_steps(packed, *arrays, sizes=sizes), causal_reference(*arrays, BFP4, smoothed_channels=4))


@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("name", ["bfp4", "bfp8"])
def test_tokens_of_a_prompt_that_are_multiplied_together(name, rows, window):
    """As several are where few heads of queries share keys: each has the bits that it has alone."""
    arrays = tensors(230, batch=2, heads=1, rows=rows, channels=32)
    make = partial(BfpKvStore, parse_kv(name).bfp, 2, 1, 32, window=window, smoothed_channels=2)
    expected = by_steps(make(), *arrays, sizes=1)
    assert torch.equal(by_steps(make(), *arrays, sizes=230), expected)
    assert torch.equal(by_steps(make(), *arrays, sizes=[150, 3, 70, 7]), expected)


@pytest.mark.parametrize(
    ("name", "rows", "channels", "window"),
    [
        ("bfp4", 20, 32, None),
        ("bfp8", 4, 64, None),
        ("bfp8", 9, 96, 70),
        ("bfp:m3:hi6:initial7:local5", 16, 64, None),
        ("bfp:m4", 2, 288, None),
        ("bfp4n+rotate", 9, 64, 70),
    ],
)
def test_many_rows_at_a_time(name, rows, channels, window, isa):
    """As matrix units take them, or code that does the same: of many heads, and of many tokens."""
    arrays, expected = case(name, 170, rows, channels, window=window)
    packed = partial(store, name, channels, window=window)
    assert torch.equal(by_steps(packed(), *arrays, sizes=[90, 1, 79]), expected)
    assert torch.equal(by_steps(packed(), *arrays, sizes=[40, 4, 126]), expected)


@pytest.mark.parametrize("rows", [3, 10])
@pytest.mark.parametrize("softmax", ["capped", "sinks", "both"])
@pytest.mark.parametrize("name", ["bfp8", "bfp4n+rotate"])
def test_soft_caps_and_sinks(name, softmax, rows, isa):
    arrays, softmax, expected = softmax_case(name, softmax, rows)
    for sizes in (1, [30, 1, 79]):
        assert torch.equal(by_steps(store(name, 32), *arrays, sizes=sizes, softmax=softmax), expected)
    assert not torch.equal(by_steps(store(name, 32), *arrays, sizes=110), expected)


def test_sinks_that_are_far_larger_than_any_score_leave_nothing():
    arrays = tensors(40, heads=1, rows=2)
    sinks = Softmax(sinks=torch.tensor([200.0, -200.0]))
    actual = by_steps(store("bfp8"), *arrays, sizes=40, softmax=sinks)
    assert actual[0, 0].abs().max() < 1e-6
    assert torch.equal(actual[0, 1], by_steps(store("bfp8"), *arrays, sizes=40)[0, 1])


@pytest.mark.parametrize(
    ("softmax", "why"), [(Softmax(sinks=torch.zeros(3)), "sinks have 3 along axis 0, not 2"), (None, "not -1.0")]
)
def test_caps_and_sinks_that_cannot_be(softmax, why):
    with pytest.raises(ValueError, match=why):
        by_steps(store("bfp8"), *tensors(5, heads=1, rows=2), softmax=softmax or Softmax(softcap=-1.0))
