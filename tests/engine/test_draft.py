"""Guesses by a draft: never seen in an answer, whatever the draft is, and kept where they are right."""

import warnings
from functools import cache

import pytest
import torch
from tests.engine.families import VOCABULARY as WORDS
from tests.engine.families import make, tokens
from tests.engine.toy import VOCABULARY, Half, ToyRunner, check_pages, check_pool, greedy

from tilepress.engine import Engine, Sampling
from tilepress.engine.native import NativeModel
from tilepress.engine.packed import PackedModel
from tilepress.engine.reference import ReferenceModel

PROMPTS = [(1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3), (9, 8, 7, 6, 1, 2), (1, 2, 3, 4, 5, 6, 7, 8, 9, 9)]
SAMPLINGS = {
    "greedy": {"max_tokens": 30},
    "sampled": {"max_tokens": 30, "temperature": 0.7, "seed": 3},
    "several": {"max_tokens": 30, "temperature": 1.0, "seed": 4, "n": 3, "top_k": 5, "repetition_penalty": 1.1},
    "the best": {"max_tokens": 30, "temperature": 1.0, "seed": 5, "best_of": 3},
    "adjusted": {"max_tokens": 30, "logprobs": 2, "logit_bias": {3: 2.0}},
    "ended": {"max_tokens": 17, "stop_tokens": [5, 6, 7]},
    "masked": {"max_tokens": 30, "mask": lambda answer: torch.arange(VOCABULARY) % 3 == len(answer) % 3},
}


class Wrong(ToyRunner):
    """Never what the toy says."""

    def run(self, chunks):
        return -super().run(chunks)


class NotNumbers(ToyRunner):
    """Logits are NaN, from some token of a text on."""

    def run(self, chunks):
        logits = super().run(chunks)
        ends = [len(self._read(chunk)) for chunk in chunks if chunk.logits]
        logits[[end >= 15 for end in ends]] = torch.nan
        return logits


class Odd(ToyRunner):
    """Every third step gives something else than logits."""

    def run(self, chunks):
        logits = super().run(chunks)
        return logits if len(self.steps) % 3 else logits[:, 1:]


class Failing(ToyRunner):
    """Every step, or every second one."""

    every = 1

    def run(self, chunks):
        logits = super().run(chunks)
        if len(self.steps) % self.every == 0:
            raise RuntimeError("out of luck")
        return logits


DRAFTS = [ToyRunner, Wrong, Half, NotNumbers, Odd]


def results_of(engine, requests):
    """All results of each request, by answer."""
    streams = []
    for prompt, options in requests:
        streams.append(engine.submit(prompt, Sampling(**options)))
        engine.step()
    while engine.step():
        check_pages(engine)
        if engine.draft:
            check_draft(engine.draft)
    check_pages(engine)
    return [sorted(stream, key=lambda result: result.answer) for stream in streams]


def check_draft(draft):
    check_pool(draft.pool, [shadow.pages for shadow in draft._shadows.values()])
    if isinstance(draft.runner, ToyRunner):
        assert all(draft.runner.held[page] == list(held) for (_, held), page in draft.pool._published.items())
    assert all(generation.running for generation in draft._shadows)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize("pages", [128, 11], ids=["", "preempted"])
def test_answers_stay_the_same(kind, sampling, pages):
    requests = [(prompt, SAMPLINGS[sampling]) for prompt in PROMPTS]
    expected = results_of(Engine(ToyRunner(128)), requests)
    engine = Engine(ToyRunner(pages), draft=kind(), draft_tokens=3, step_tokens=20)
    assert results_of(engine, requests) == expected
    if pages < 128 and sampling != "ended":
        assert engine.stats.preemptions > 0
    assert engine.stats.answer_tokens >= sum(map(len, expected)) and not engine.draft._shadows


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_perfect_draft_is_right_always(temperature, count):
    engine = Engine(ToyRunner(64, page_tokens=16), draft=ToyRunner(64, page_tokens=16), draft_tokens=count)
    plain = Engine(ToyRunner(64, page_tokens=16))
    for one in (engine, plain):
        one.submit((1, 2, 3), Sampling(max_tokens=40, temperature=temperature, seed=1))
        one.run()
    stats = engine.stats
    assert stats.right_tokens == stats.guessed_tokens > 0 and stats.answer_tokens == 40
    assert stats.steps + stats.right_tokens == 40 == plain.stats.steps
    assert stats.steps <= 40 / (count + 1) + 40 / 16 + 3  # a step without guesses at the end of a page


def test_a_wrong_draft_is_never_right_and_costs_no_step():
    engine = Engine(ToyRunner(64), draft=Wrong(64))
    assert engine.submit((1, 2, 3), Sampling(max_tokens=40)).wait().tokens == greedy((1, 2, 3), 40)
    assert engine.stats.right_tokens == 0 < engine.stats.guessed_tokens and engine.stats.steps == 40


@pytest.mark.parametrize("count", [2, 5])
def test_the_draft_reads_the_answer_and_its_own_guesses(count):
    """None of those that were wrong, and taken back."""

    class Reading(Half):
        def run(self, chunks):
            logits = super().run(chunks)
            reads.extend(self._read(chunk) for chunk in chunks if chunk.logits)
            return logits

    reads = []
    draft = Reading(64, page_tokens=7)
    engine = Engine(ToyRunner(64, page_tokens=16), draft=draft, draft_tokens=count)
    text = (1, 2, 3, *greedy((1, 2, 3), 50))
    stream = engine.submit((1, 2, 3), Sampling(max_tokens=50))
    while engine.step():
        check_draft(engine.draft)
    assert stream.tokens == list(text[3:])
    begun = [read for before, read in zip([(), *reads], reads, strict=False) if read[:-1] != before]
    assert len(begun) > 10 and all(read == text[: len(read)] for read in begun)
    assert 0 < engine.stats.right_tokens < engine.stats.guessed_tokens


@pytest.mark.parametrize("page_tokens", [4, 5, 16])
@pytest.mark.parametrize("draft_page_tokens", [3, 4, 7, 16])
def test_pages_of_the_draft_may_have_another_size(page_tokens, draft_page_tokens):
    draft = ToyRunner(64, page_tokens=draft_page_tokens)
    engine = Engine(ToyRunner(64, page_tokens=page_tokens), draft=draft, draft_tokens=6)
    assert engine.submit((1, 2, 3), Sampling(max_tokens=50)).wait().tokens == greedy((1, 2, 3), 50)
    assert engine.stats.right_tokens == engine.stats.guessed_tokens > 10


def test_the_draft_computes_each_token_once_and_shares_prompts():
    """But for what it guessed at the end of answers; and a prompt's last page, which answers do not share."""
    draft = ToyRunner(64, page_tokens=4)
    engine = Engine(ToyRunner(64), draft=draft, draft_tokens=2, prefix_cache=True)
    prompt = tuple(range(1, 19))
    engine.submit(prompt, Sampling(max_tokens=10, n=4, temperature=1.0, seed=1)).wait()
    assert draft.computed <= 16 + 4 * (3 + 10) and engine.stats.right_tokens > 8
    before = draft.computed
    engine.submit((*prompt, 20, 21), Sampling(max_tokens=2)).wait()
    assert draft.computed - before <= 5


def test_long_prompts_take_the_draft_several_steps():
    prompt = tuple(token % 30 for token in range(50))
    draft = ToyRunner(64, longest=200, page_tokens=8)
    engine = Engine(ToyRunner(64, longest=200, page_tokens=8), draft=draft, step_tokens=16)
    assert engine.submit(prompt, Sampling(max_tokens=30)).wait().tokens == greedy(prompt, 30)
    assert max(sum(len(chunk.tokens) for chunk in chunks) for chunks in draft.steps) == 16
    assert engine.stats.right_tokens > 10


def test_guesses_stay_within_the_tokens_of_a_step():
    runner = ToyRunner(64, page_tokens=16)
    engine = Engine(runner, draft=ToyRunner(64, page_tokens=16), draft_tokens=5, step_tokens=12)
    for prompt in ((1,), (2,), (3,)):
        engine.submit(prompt, Sampling(max_tokens=12))
    engine.run()
    assert max(sum(len(chunk.tokens) for chunk in chunks) for chunks in runner.steps) == 12


def test_all_answers_are_drafted_in_one_step():
    draft = ToyRunner(64)
    engine = Engine(ToyRunner(64), draft=draft, draft_tokens=2)
    for prompt in ((1,), (2,), (3,)):
        engine.submit(prompt, Sampling(max_tokens=3, ignore_eos=True))
    engine.run()
    assert {len(chunks) for chunks in draft.steps} == {3}


@pytest.mark.parametrize("pages", [1, 3, 5])
def test_answers_without_pages_in_the_draft_get_no_guesses(pages):
    requests = [(prompt, {"max_tokens": 20}) for prompt in PROMPTS]
    engine = Engine(ToyRunner(64), draft=ToyRunner(pages))
    assert results_of(engine, requests) == results_of(Engine(ToyRunner(64)), requests)
    assert engine.stats.right_tokens == engine.stats.guessed_tokens


def test_a_draft_with_shorter_texts_guesses_as_long_as_it_can():
    engine = Engine(ToyRunner(64), draft=ToyRunner(64, longest=20))
    assert engine.submit((1, 2, 3), Sampling(max_tokens=50)).wait().tokens == greedy((1, 2, 3), 50)
    assert 0 < engine.stats.right_tokens < 20


def test_nothing_is_guessed_after_an_end():
    expected = greedy((1, 2, 3), 20)
    draft = ToyRunner(64, page_tokens=16)
    engine = Engine(ToyRunner(64, page_tokens=16), draft=draft, draft_tokens=8, eos=[expected[3]])
    assert engine.submit((1, 2, 3)).wait().tokens == expected[:4]
    assert engine.stats.guessed_tokens == len(draft.steps) == 3


def test_masks_are_asked_about_answers_alone():
    seen = []
    engine = Engine(ToyRunner(64), draft=ToyRunner(64))
    engine.submit((1, 2, 3), Sampling(max_tokens=8, mask=lambda answer: seen.append(tuple(answer)))).wait()
    expected = greedy((1, 2, 3), 8)
    assert seen == [tuple(expected[:count]) for count in range(8)] and engine.stats.right_tokens > 0


def test_look_up_comes_first():
    """Its guesses are wrong here: what was said once is not said again."""
    prompt = (1, 2, 3, 4) * 4
    engine = Engine(ToyRunner(64, page_tokens=16), lookup=3, draft=Wrong(64, page_tokens=16))
    assert engine.submit(prompt, Sampling(max_tokens=40)).wait().tokens == greedy(prompt, 40)
    perfect = Engine(ToyRunner(64, page_tokens=16), lookup=3, draft=ToyRunner(64, page_tokens=16))
    assert perfect.submit(prompt, Sampling(max_tokens=40)).wait().tokens == greedy(prompt, 40)
    assert perfect.stats.right_tokens > engine.stats.right_tokens


@pytest.mark.parametrize("every", [1, 2])
def test_a_draft_that_fails_again_and_again_is_switched_off_with_one_warning(every):
    draft = Failing(64, page_tokens=16)
    draft.every = every
    engine = Engine(ToyRunner(64, page_tokens=16), draft=draft)
    with pytest.warns(RuntimeWarning, match="the draft is switched off, since it fails: RuntimeError: out of luck"):
        stream = engine.submit((1, 2, 3), Sampling(max_tokens=20)).wait()
    assert stream.tokens == greedy((1, 2, 3), 20) and len(draft.steps) == 3 * every
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.submit((1, 2), Sampling(max_tokens=5)).wait().tokens == greedy((1, 2), 5)
    assert engine.stats.guessed_tokens == 0 and len(draft.steps) == 3 * every
    assert draft.held == [[None] * 16] * 64


def test_a_draft_that_fails_now_and_then_stays():
    draft = Odd(64)
    engine = Engine(ToyRunner(64), draft=draft, draft_tokens=2)
    assert engine.submit((1, 2, 3), Sampling(max_tokens=40)).wait().tokens == greedy((1, 2, 3), 40)
    assert engine.stats.right_tokens > 5


def test_logits_that_are_no_numbers_leave_an_answer_without_guesses_and_others_with_theirs():
    draft = NotNumbers(64)
    engine = Engine(ToyRunner(64), draft=draft)
    long, short = (engine.submit(prompt, Sampling(max_tokens=10)) for prompt in (PROMPTS[0], (1, 2)))
    engine.run()
    assert long.tokens == greedy(PROMPTS[0], 10) and short.tokens == greedy((1, 2), 10)
    assert len({len(chunks) for chunks in draft.steps}) == 2
    check_draft(engine.draft)


def test_an_interrupt_of_the_draft_is_passed_on_and_harms_nothing():
    draft = ToyRunner(64)
    engine = Engine(ToyRunner(64), draft=draft)
    streams = [engine.submit(prompt, Sampling(max_tokens=20, n=2)) for prompt in PROMPTS]
    for _ in range(5):
        engine.step()
        draft.failing = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            engine.step()
        draft.failing = None
        check_pages(engine)
        check_draft(engine.draft)
    engine.run()
    for prompt, stream in zip(PROMPTS, streams, strict=True):
        assert [answer.tokens for answer in stream.answers] == [greedy(prompt, 20)] * 2


def test_cancelled_while_the_draft_computes():
    draft = ToyRunner(64)
    engine = Engine(ToyRunner(64), draft=draft)
    stream, other = (engine.submit(prompt, Sampling(max_tokens=20)) for prompt in PROMPTS[:2])
    for _ in range(2):
        engine.step()
    draft.during = stream.cancel
    engine.step()
    draft.during = None
    assert stream.finish_reason == "cancelled" and stream.tokens == greedy(PROMPTS[0], len(stream.tokens))
    assert other.wait().tokens == greedy(PROMPTS[1], 20)
    assert draft.held[:3] and not engine.draft._shadows
    check_draft(engine.draft)


def test_what_is_refused():
    runner = ToyRunner()
    with pytest.raises(ValueError, match="a draft has pages of its own: give another runner than the model's"):
        Engine(runner, draft=runner)
    with pytest.raises(ValueError, match="draft_tokens is a number of tokens, 1 or more, not 0"):
        Engine(runner, draft=ToyRunner(), draft_tokens=0)
    with pytest.raises(ValueError, match="a draft needs a cache that can take tokens back: float32, bf16 or bfp8"):
        Engine(runner, draft=ToyRunner(fixed_pages=False))
    with pytest.raises(ValueError, match="a draft needs a cache that can take tokens back: float32, bf16 or bfp8"):
        Engine(ToyRunner(fixed_pages=False), draft=runner)
    other = ToyRunner()
    other.vocabulary = 50
    with pytest.raises(ValueError, match="a draft has the model's vocabulary: 32 tokens, not 50"):
        Engine(runner, draft=other)


@pytest.fixture(scope="module")
def model():
    return make("llama", max_position_embeddings=512)


@pytest.fixture(scope="module")
def near(model):
    """The same model with weights rounded so that it chooses other tokens, sometimes."""
    twin = make("llama", max_position_embeddings=512)
    twin.load_state_dict({name: weight.to(torch.float8_e4m3fn).float() for name, weight in model.state_dict().items()})
    return twin


REQUESTS = [
    (tokens(20), {"max_tokens": 60}),
    (tokens(70, seed=2), {"max_tokens": 60, "temperature": 0.7, "seed": 1, "n": 3}),
    (tokens(20)[:17] + tokens(5, seed=3), {"max_tokens": 60, "temperature": 1.0, "seed": 2, "top_p": 0.9}),
    (tokens(33, seed=4), {"max_tokens": 40, "stop_tokens": [5, 6, 7, 8]}),
]


@pytest.fixture(scope="module")
def answers(model):
    """Format of the cache → what the model answers alone."""
    return cache(lambda kv: results_of(Engine(model, kv, eos=[]), REQUESTS))


@pytest.mark.parametrize("kv", ["float32", "bfp8"])
@pytest.mark.parametrize("count", [1, 4, 9])
def test_models_near_each_other(model, near, answers, kv, count):
    """Pages of a model hold nothing of wrong guesses, and the draft is right often, not always."""
    engine = Engine(model, kv, draft=near, draft_tokens=count, eos=[])
    assert results_of(engine, REQUESTS) == answers(kv)
    assert engine.stats.guessed_tokens / 4 < engine.stats.right_tokens < engine.stats.guessed_tokens


@pytest.mark.parametrize("kv", ["float32", "bfp8"])
def test_the_model_itself_is_right_always(model, kv):
    """At any temperature, after other guesses were taken back, and with the last pages of its memory."""
    engine = Engine(model, kv, draft=model, eos=[])
    results_of(engine, REQUESTS)
    assert engine.stats.right_tokens == engine.stats.guessed_tokens > 100


@pytest.mark.parametrize("runner, pages", [(ReferenceModel, 16), (NativeModel, 16)])
def test_plain_runners_that_run_out_of_pages(model, near, runner, pages):
    expected = results_of(Engine(runner(model, 16, 64)), REQUESTS[:3])
    for draft in (runner(near, 16, 12), runner(near, 32, 64), PackedModel(near, "bfp8", 64)):
        engine = Engine(runner(model, 16, pages), draft=draft)
        assert results_of(engine, REQUESTS[:3]) == expected
        assert engine.stats.preemptions > 0 and engine.stats.right_tokens > 0


def test_a_packed_draft_with_smaller_pages_than_the_model(model, near):
    """Tokens of a full page cannot be taken back from it."""
    expected = results_of(Engine(NativeModel(model, 128, 64)), REQUESTS)
    engine = Engine(NativeModel(model, 128, 64), draft=PackedModel(near, "bfp8", 64), draft_tokens=9)
    failed = []
    engine.draft._fail = failed.append
    assert results_of(engine, REQUESTS) == expected and not failed
    assert 0 < engine.stats.right_tokens < engine.stats.guessed_tokens


def test_memory_is_divided_by_what_a_token_takes(model):
    small = make("llama", num_hidden_layers=1, max_position_embeddings=512)
    for kv in ("float32", "bfp8"):
        engine = Engine(model, kv, kv_memory="1 MiB", draft=small)
        drafting, whole = engine.draft.runner, Engine(model, kv, kv_memory="1 MiB").runner
        assert abs(drafting.pages - engine.runner.pages) <= 1
        assert engine.runner.pages == int(whole.pages * 4 / 5)
    ready = PackedModel(model, "bfp8", 7)
    assert Engine(ready, "float32", kv_memory="1 MiB", draft=small).draft.runner.pages == (1 << 20) // (32 * 2 * 64 * 4)


def test_models_that_do_not_go_together(model):
    with pytest.raises(ValueError, match=f"a draft has the model's vocabulary: {WORDS} tokens, not 64"):
        Engine(model, draft=make("llama", vocab_size=64))
    with pytest.raises(ValueError, match="a draft needs a cache that can take tokens back"):
        Engine(model, draft=make("mistral"))
