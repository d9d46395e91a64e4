"""The reference model against transformers' own forward: whole prompts, chunks, single tokens, ragged batches."""

import random
from itertools import pairwise

import pytest
import torch
from tests.engine.families import FAMILIES, LENGTH, ORIGINAL, logits, make, tokens

from tilepress.engine.batch import Chunk
from tilepress.engine.reference import ReferenceModel

BOUND = 1e-5  # of the largest logit, for every family and every way of feeding
PAGE_TOKENS = 8
PAGES = 24


def runner(model, **options):
    return ReferenceModel(model, PAGE_TOKENS, PAGES, longest=LENGTH, **options)


def pages_of(sequence, sequences=1):
    """Pages of one of several sequences: neither in order nor next to each other."""
    return tuple(range(PAGES - 1 - sequence, -1, -sequences))


def chunk(text, start, end, pages, wants_logits=True):
    held = tuple(pages[: -(-end // PAGE_TOKENS)])
    return Chunk(text[start:end], start, held, wants_logits)


def error(actual, expected):
    return ((actual - expected).abs().max() / expected.abs().max()).item()


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    """A model, a text, and transformers' logits of all its tokens."""
    model, text = make(request.param), tokens()
    return model, text, logits(model, text)


def test_a_prompt_in_one_chunk(family):
    model, text, expected = family
    actual = runner(model).run([chunk(text, 0, LENGTH, pages_of(0))])
    assert actual.shape == (1, expected.shape[1]) and actual.dtype == torch.float32
    assert error(actual[0], expected[-1]) <= BOUND


def test_a_prompt_in_chunks_then_single_tokens(family):
    model, text, expected = family
    reference, ends = runner(model), [0, 7, 8, 21, 30, *range(31, LENGTH + 1)]
    for start, end in pairwise(ends):
        actual = reference.run([chunk(text, start, end, pages_of(0))])
        assert error(actual[0], expected[end - 1]) <= BOUND, (start, end)


def test_a_ragged_batch(family):
    """A prompt's middle, a single token and another prompt's beginning; the second wants no logits."""
    model, text, expected = family
    reference, other = runner(model), tokens(seed=2)
    first, second, third = (pages_of(number, 3) for number in range(3))
    reference.run([chunk(text, 0, 10, first, False), chunk(text, 0, 30, second, False)])
    batch = [chunk(text, 10, 33, first), chunk(text, 30, 31, second, False), chunk(other, 0, LENGTH, third)]
    actual = reference.run(batch)
    assert actual.shape[0] == 2
    assert error(actual[0], expected[32]) <= BOUND
    assert error(actual[1], logits(model, other)[-1]) <= BOUND
    actual = reference.run([chunk(text, 31, 32, second), chunk(text, 33, LENGTH, first)])
    assert error(actual, expected[[31, LENGTH - 1]]) <= BOUND


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3_moe"])
def test_random_steps_over_random_pages(name, seed):
    model, drawn = make(name), random.Random(seed)
    texts = [tokens(drawn.randint(20, LENGTH), seed=number) for number in range(4)]
    pages, done = drawn.sample(range(PAGES), PAGES), [0] * len(texts)
    expected, reference = [logits(model, text) for text in texts], runner(model)
    while open := [number for number, text in enumerate(texts) if done[number] < len(text)]:
        chosen = drawn.sample(open, drawn.randint(1, len(open)))
        ends = {number: min(done[number] + drawn.choice([1, 1, 5, 17]), len(texts[number])) for number in chosen}
        actual = reference.run([chunk(texts[n], done[n], ends[n], pages[n::4]) for n in chosen])
        for n, row in zip(chosen, actual, strict=True):
            assert error(row, expected[n][ends[n] - 1]) <= BOUND
            done[n] = ends[n]


@pytest.mark.parametrize("name", ["phi3-longrope", "llama-dynamic"])
def test_short_sequences_have_the_positions_of_short_ones_if_none_is_longer(name):
    """What depends on a sequence's length in transformers depends on the longest here."""
    model, text = make(name), tokens(ORIGINAL)
    expected, step = logits(model, text)[-1], [chunk(text, 0, ORIGINAL, pages_of(0))]
    assert error(ReferenceModel(model, PAGE_TOKENS, PAGES, longest=ORIGINAL).run(step)[0], expected) <= BOUND
    assert error(runner(model).run(step)[0], expected) > 100 * BOUND
