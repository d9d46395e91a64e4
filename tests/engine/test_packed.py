"""Packed sequences: as a model of transformers with such a cache, and the same bits in any company and any pieces."""

import pytest
import torch
from tests.engine.families import VOCABULARY, make, tokens
from transformers import DynamicCache

import tilepress
from tilepress.engine.batch import Chunk
from tilepress.engine.packed import PackedModel
from tilepress.formats import FormatError

PAGE, LENGTH, PAGES = 32, 201, 24
FIRST, SECOND = (3, 1, 7, 5, 9, 11, 13), (0, 2, 4, 6, 8, 10, 12)  # pages of two sequences
FAMILIES = ["llama", "mistral", "qwen3", "gemma2", "gemma3", "gpt_oss", "qwen3_moe"]
SHARING = ["bfp8", "bfp:m4"]
OTHERS = ["bfp4", "bfp4n+rotate", "sparse:k30,v50", "bfp8+sparse:k30,v50"]


@pytest.fixture(scope="module")
def llama():
    return make("llama", max_position_embeddings=512)


def chunk(text, start, end, pages, wants_logits=True):
    return Chunk(text[start:end], start, tuple(pages[: -(-end // PAGE)]), wants_logits)


def in_pieces(runner, text, ends, pages=FIRST, start=0):
    """Logits after each piece."""
    starts = [start, *ends]
    return [runner.run([chunk(text, start, end, pages)])[0] for start, end in zip(starts, ends, strict=False)]


def of_transformers(model, text, ends, cache=None):
    """Logits of the same pieces."""
    given, starts = torch.tensor([text]), [0, *ends[:-1]]
    cache = DynamicCache(config=model.config) if cache is None else cache
    return torch.stack(
        [
            model(given[:, start:end], past_key_values=cache).logits[0, -1]
            for start, end in zip(starts, ends, strict=True)
        ]
    )


@pytest.mark.parametrize("kv", [*SHARING, *OTHERS])
@pytest.mark.parametrize("family", FAMILIES)
def test_as_transformers_with_such_a_cache(family, kv):
    """What rounds the other way, since the model computes in another order, is far less than what the cache changes."""
    model, text, ends = make(family, max_position_embeddings=512), tokens(LENGTH), [100, 190, 191, 192, 193, LENGTH]
    smoothing = "online" if kv == "bfp:m4" else "none"
    actual = torch.stack(in_pieces(PackedModel(model, kv, PAGES, smoothing=smoothing), text, ends))
    exact = of_transformers(model, text, ends)
    expected = of_transformers(model, text, ends, tilepress.kv_cache(model, kv, smoothing))
    assert 0 < (actual - expected).norm() <= 0.2 * (exact - expected).norm()


@pytest.mark.parametrize("kv", [*SHARING, *OTHERS])
@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_the_same_bits_in_any_pieces_and_any_company(family, kv):
    model, text, other = make(family, max_position_embeddings=512), tokens(LENGTH), tokens(LENGTH, seed=2)
    alone = in_pieces(PackedModel(model, kv, PAGES), text, [LENGTH - 1, LENGTH])
    packed = PackedModel(model, kv, PAGES)
    pages, others = FIRST, SECOND
    packed.run([chunk(text, 0, 70, pages, False), chunk(other, 0, 5, others, False)])
    packed.run([chunk(other, 5, 128, others), chunk(text, 70, 128, pages, False)])
    packed.run([chunk(text, 128, 200, pages, False), chunk(other, 128, 129, others)])
    last = packed.run([chunk(other, 129, 130, others), chunk(text, 200, 201, pages)])
    assert torch.equal(last[1], alone[1])


@pytest.mark.parametrize("kv", SHARING)
def test_pages_of_another_sequence(llama, kv):
    """Full ones serve a sequence that begins alike, also when the first one is gone; and forks copy the last."""
    text, other = tokens(LENGTH), tokens(128) + tokens(73, seed=2)
    alone = PackedModel(llama, kv, PAGES)
    (expected,) = in_pieces(alone, other, [LENGTH])
    packed = PackedModel(llama, kv, PAGES)
    assert packed.fixed_pages
    in_pieces(packed, text, [150, LENGTH])
    packed.release(FIRST[4:])
    own, forked = (*FIRST[:4], 8, 10, 12), (*FIRST[:4], 8, 10, 14)
    assert torch.equal(packed.run([chunk(other, 128, LENGTH, own)])[0], expected)
    packed.copy_page(12, 14)
    fork = (*other, 5)
    one, two = packed.run([chunk(fork, LENGTH, 202, forked), chunk(fork, LENGTH, 202, own)])
    assert torch.equal(one, two)
    assert torch.equal(one, alone.run([chunk(fork, LENGTH, 202, FIRST)])[0])


@pytest.mark.parametrize("kv", OTHERS)
def test_copies_of_a_sequence_whose_pages_change(llama, kv):
    """They go on alike from where it stood, also when it is gone; it stands nowhere else."""
    text, other = tokens(LENGTH), tokens(128) + tokens(73, seed=2)
    (expected,) = in_pieces(PackedModel(llama, kv, PAGES), other, [LENGTH])
    packed = PackedModel(llama, kv, PAGES)
    in_pieces(packed, text, [64, 128])
    assert [page for page in FIRST if packed.can_go_on(page)] == [FIRST[3]]
    packed.copy_page(FIRST[3], 14)
    in_pieces(packed, text, [LENGTH], start=128)
    assert [page for page in range(PAGES) if packed.can_go_on(page)] == [14]
    packed.release(FIRST)
    assert torch.equal(packed.run([chunk(other, 128, LENGTH, (*FIRST[:3], 14, 8, 10, 12))])[0], expected)
    assert not any(map(packed.can_go_on, range(PAGES)))


@pytest.mark.parametrize("kv", OTHERS)
def test_formats_whose_pages_are_not_fixed(llama, kv):
    packed, text = PackedModel(llama, kv, PAGES), tokens(LENGTH)
    assert not packed.fixed_pages
    in_pieces(packed, text, [128])
    with pytest.raises(ValueError, match=r"pages \(3, 1, 7, 5\) do not hold 128 tokens of one sequence"):
        packed.release((5,))
        packed.run([chunk(text, 128, 130, FIRST)])


def test_pages_are_not_fixed_where_windows_slide():
    assert not PackedModel(make("mistral"), "bfp8", PAGES).fixed_pages


def test_pages_that_hold_something_else(llama):
    packed, text = PackedModel(llama, "bfp8", PAGES), tokens(LENGTH)
    in_pieces(packed, text, [70])
    for start, pages in [(32, (9, 2)), (63, FIRST), (71, FIRST), (96, FIRST)]:
        with pytest.raises(ValueError, match="do not hold"):
            packed.run([chunk(text, start, start + 1, pages)])
    with pytest.raises(ValueError, match="a sequence has at most 512 tokens"):
        packed.run([chunk(text * 3, 70, 513, range(17))])
    alone = in_pieces(PackedModel(llama, "bfp8", PAGES), text, [70, 71])
    assert torch.equal(packed.run([chunk(text, 70, 71, FIRST)])[0], alone[1])


@pytest.mark.parametrize("kv", SHARING)
def test_other_tokens_in_the_places_of_some(llama, kv):
    """Within a page that is not full, as guesses need it."""
    text = tokens(LENGTH)
    packed = PackedModel(llama, kv, PAGES, smoothing="online")
    packed.run([chunk(text, 0, 20, FIRST), chunk(text, 0, 70, SECOND)])
    guessed, later = text[20:22] + tokens(7, seed=2), text[70:71] + tokens(9, seed=3)
    packed.run([Chunk(guessed, 20, FIRST[:1], 9), Chunk(later, 70, SECOND[:3], 10)])
    one, other = packed.run([chunk(text, 22, 150, FIRST), chunk(text, 71, 150, SECOND)])
    alone = PackedModel(llama, kv, PAGES, smoothing="online")
    (expected,) = in_pieces(alone, text, [150])
    assert torch.equal(one, expected) and torch.equal(other, expected)


@pytest.mark.parametrize("kv", ["bfp8", "bfp4"])
def test_numbers_that_are_none_stay_in_their_sequence(kv):
    model = make("llama", max_position_embeddings=512)
    model.model.embed_tokens.weight[7] = float("nan")
    text = tuple(8 if token == 7 else token for token in tokens(LENGTH))
    bad = (*text[:80], 7, *text[81:])
    (alone,) = in_pieces(PackedModel(model, kv, PAGES), text, [150])
    packed = PackedModel(model, kv, PAGES)
    pages, others = SECOND, FIRST
    rows = packed.run([chunk(bad, 0, 70, pages), chunk(text, 0, 30, others)])
    assert rows.isfinite().all()
    rows = packed.run([chunk(bad, 70, 90, pages), chunk(text, 30, 150, others)])
    assert rows[0].isnan().all() and torch.equal(rows[1], alone)
    assert packed.run([chunk(bad, 90, 130, pages)]).isnan().all()
    packed.release(pages)
    assert torch.equal(packed.run([chunk(text, 0, 150, pages)])[0], alone)


@pytest.mark.parametrize(("kv", "bits"), {"bfp8": 9 + 5 / 32, "bfp4": 5 + 5 / 32}.items())
def test_bytes_of_a_page(llama, kv, bits):
    """A sign, a magnitude, and an exponent for 32 numbers; what a sequence has besides is not counted."""
    layers, heads, channels = 4, 2, 32
    assert PackedModel(llama, kv, PAGES).page_bytes == layers * 2 * heads * channels * PAGE * bits / 8


def test_heads_that_cannot_be_packed():
    with pytest.raises(FormatError, match="heads of 16 channels cannot be cut in groups of 32"):
        PackedModel(make("olmo2"), "bfp8", PAGES)


def test_logits_are_of_the_vocabulary(llama):
    assert PackedModel(llama, "bfp8", PAGES).run([chunk(tokens(), 0, 5, (0,), False)]).shape == (0, VOCABULARY)
