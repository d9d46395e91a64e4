"""Guesses from the text before: found as a plain search finds them, and never seen in an answer."""

from array import array

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.families import make, tokens
from tests.engine.toy import VOCABULARY, ToyRunner, check_pages

from tilepress.engine import Engine, Sampling
from tilepress.engine.lookup import GRAMS, look_up

SAMPLINGS = [
    Sampling(max_tokens=40),
    Sampling(max_tokens=40, temperature=0.7, seed=3),
    Sampling(max_tokens=40, temperature=1.0, seed=4, n=3, top_k=5, repetition_penalty=1.1),
    Sampling(max_tokens=40, logprobs=2),
    Sampling(max_tokens=17, stop_tokens=[5]),
]


class Counting(ToyRunner):
    """Counts on, most of the time."""

    def run(self, chunks):
        logits = super().run(chunks)
        held = [self._read(chunk) for chunk in chunks]
        ends = [
            read[len(read) - 1 - after]
            for read, chunk in zip(held, chunks, strict=True)
            for after in reversed(range(chunk.logits))
        ]
        for row, last in zip(logits, ends, strict=True):
            row[(last + 1) % 10] += 7
        return logits


def plain_look_up(text, most):
    for gram in GRAMS:
        for at in reversed(range(len(text) - gram)):
            if text[at : at + gram] == text[-gram:]:
                return tuple(text[at + gram : at + gram + most])
    return ()


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 9))
def test_as_a_plain_search(text, most):
    assert look_up(array("q", text), most) == plain_look_up(text, most)


def test_numbers_are_compared_whole():
    """Bytes of neighbours never count as a number."""
    text = [1 << 32, 1, 1 << 32, 0, 1, 1]
    assert look_up(array("q", text), 3) == plain_look_up(text, 3)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("lookup", [1, 3, 16])
def test_answers_stay_the_same(sampling, lookup):
    prompts = [list(range(8)) * 2, [1, 2, 3], [9, 8, 7, 6, 1, 2]]
    plain, guessing = (Engine(Counting(64, page_tokens=16), lookup=count) for count in (0, lookup))
    streams = [[engine.submit(prompt, sampling) for prompt in prompts] for engine in (plain, guessing)]
    for engine in (plain, guessing):
        engine.run()
        check_pages(engine)
    for mine, theirs in zip(*streams, strict=True):
        by_answer = [sorted(results, key=lambda result: result.answer) for results in (mine, theirs)]
        assert by_answer[0] == by_answer[1]
    stats = guessing.stats
    assert plain.stats.guessed_tokens == 0 < stats.right_tokens <= stats.guessed_tokens
    assert stats.steps < plain.stats.steps
    assert stats.answer_tokens == plain.stats.answer_tokens


@pytest.mark.parametrize("kv", ["float32", "bfp8"])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_tokens_that_were_taken_back_leave_nothing(kv, temperature):
    """In pages of a model; texts are long enough for it to repeat itself."""
    model, ask = make("llama", max_position_embeddings=512), Sampling(max_tokens=200, temperature=temperature, seed=1)
    prompts = [tokens(20) * 2, tokens(33, seed=2)]
    answers = []
    for lookup in (0, 6):
        engine = Engine(model, kv, lookup=lookup, eos=[])
        streams = [engine.submit(prompt, ask) for prompt in prompts]
        engine.run()
        answers.append([stream.tokens for stream in streams])
    assert answers[0] == answers[1]
    assert engine.stats.guessed_tokens > engine.stats.right_tokens


def test_what_is_refused():
    with pytest.raises(ValueError, match="lookup is a number of tokens, 0 or more, not -1"):
        Engine(ToyRunner(), lookup=-1)
    with pytest.raises(ValueError, match="lookup needs a cache that can take tokens back"):
        Engine(ToyRunner(fixed_pages=False), lookup=2)


def test_logits_that_are_no_numbers_end_an_answer_amid_guesses():
    class Failing(Counting):
        def run(self, chunks):
            logits = super().run(chunks)
            if any(chunk.guessed for chunk in chunks):
                logits[-1] = torch.nan
            return logits

    engine = Engine(Failing(64, page_tokens=16), lookup=3)
    stream = engine.submit(list(range(8)) * 2, Sampling(max_tokens=30)).wait()
    assert stream.error == "logits are not numbers" and 0 < len(stream.tokens) < 30
    assert max(stream.tokens) < VOCABULARY
    check_pages(engine)
