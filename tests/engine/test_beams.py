"""Beam search: the answers of transformers', in any company and with few pages."""

import pytest
import torch
from tests.engine.families import VOCABULARY, make, tokens
from tests.engine.toy import ToyRunner, check_pages

from tilepress.engine import Engine, Sampling
from tilepress.engine.native import NativeModel
from tilepress.engine.packed import PackedModel
from tilepress.engine.reference import ReferenceModel

ENDS = tuple(range(20, 44))  # so many that answers end
PROMPTS = [tokens(20), tokens(20)[:17] + tokens(8, seed=2), tokens(3, seed=3)]


@pytest.fixture(scope="module")
def model():
    return make("llama", max_position_embeddings=256)


def of_transformers(model, prompt, ends=ENDS, *, n, beams, most, **options):
    """Answers, without what comes after their ends."""
    out = model.generate(
        torch.tensor([prompt]),
        num_beams=beams,
        num_return_sequences=n,
        max_new_tokens=most,
        do_sample=False,
        eos_token_id=list(ends) or None,
        pad_token_id=0,
        **options,
    )
    answers = [row[len(prompt) :].tolist() for row in out]
    return [cut(answer, ends) for answer in answers]


def cut(answer, ends):
    return next((answer[: place + 1] for place, token in enumerate(answer) if token in ends), answer)


def submit(engine, prompt, ends=ENDS, *, n, beams, most, **options):
    return engine.submit(prompt, Sampling(n=n, beams=beams, max_tokens=most, stop_tokens=ends, **options))


def answers_of(stream):
    assert stream.finished and stream.error is None
    return [answer.tokens for answer in stream.answers]


@pytest.mark.parametrize(
    "options",
    [
        {"n": 1, "beams": 4, "most": 12},
        {"n": 4, "beams": 4, "most": 30},
        {"n": 2, "beams": 3, "most": 1},
        {"n": 3, "beams": 3, "most": 25, "length_penalty": 2.0},
        {"n": 3, "beams": 3, "most": 25, "length_penalty": 0.0},
        {"n": 3, "beams": 3, "most": 25, "length_penalty": -1.5},
        {"n": 4, "beams": 4, "most": 25, "early_stopping": True},
        {"n": 4, "beams": 4, "most": 25, "early_stopping": "never"},
        {"n": 4, "beams": 4, "most": 25, "early_stopping": "never", "length_penalty": -1.0},
        {"n": 5, "beams": 5, "most": 20, "ends": ()},
        {"n": 2, "beams": 2, "most": 40, "ends": (30,)},
    ],
    ids=str,
)
@pytest.mark.parametrize("runner", [ReferenceModel, NativeModel])
def test_as_transformers(model, runner, options):
    engine = Engine(runner(model, 16, 64))
    streams = [submit(engine, prompt, **options) for prompt in PROMPTS]
    while engine.step():
        check_pages(engine)
    check_pages(engine)
    assert engine.stats.pages_used == 0
    for prompt, stream in zip(PROMPTS, streams, strict=True):
        assert answers_of(stream) == of_transformers(model, prompt, **options)


@pytest.mark.parametrize("pages", [64, 5, 3])
def test_in_company_and_with_few_pages(model, pages):
    """As few as hold one beam."""
    options = {"n": 3, "beams": 4, "most": 20}
    expected = [of_transformers(model, prompt, **options) for prompt in PROMPTS]
    engine = Engine(NativeModel(model, 16, pages), step_tokens=40, max_sequences=9)
    sampled = Sampling(max_tokens=20, temperature=1.0, seed=1, n=2)
    streams = []
    for prompt in PROMPTS:
        streams.append((submit(engine, prompt, **options), engine.submit(prompt, sampled)))
        engine.step()
        check_pages(engine)
    while engine.step():
        check_pages(engine)
    assert engine.stats.pages_used == 0 and (engine.stats.preemptions > 0 or pages > 5)
    for prompt, (stream, other), best in zip(PROMPTS, streams, expected, strict=True):
        assert answers_of(stream) == best
        assert answers_of(other) == answers_of(Engine(NativeModel(model, 16, 64)).submit(prompt, sampled).wait())


@pytest.mark.parametrize("kv", ["bfp8", "sparse:k30,v50"])
def test_packed_pages(kv):
    """Beams of long prompts are those of an engine that has room for all, with room for two."""
    model = make("llama", max_position_embeddings=512)
    answers = []
    for pages in (64, 8):
        engine = Engine(PackedModel(model, kv, pages))
        streams = [submit(engine, tokens(90, seed), n=2, beams=3, most=40) for seed in (1, 2)]
        engine.run()
        check_pages(engine)
        answers.append([answers_of(stream) for stream in streams])
    assert answers[0] == answers[1] and engine.stats.preemptions > 0
    if kv != "bfp8":
        assert engine.runner._open.keys() == engine.scheduler.shared.kept.keys()


def test_beams_share_pages():
    """Of a prompt of 10 pages, and of what they have in common."""
    runner = ToyRunner(pages=64)
    engine = Engine(runner)
    engine.submit(tuple(range(30)) + (1,) * 10, Sampling(beams=4, max_tokens=4)).wait()
    assert runner.computed == 40 + 4 * 3


def test_results_come_when_all_are_known():
    engine = Engine(ToyRunner(64), decode=lambda ids: "".join(f"<{token}>" for token in ids))
    stream = engine.submit((1, 2, 3), Sampling(beams=3, n=2, max_tokens=5))
    for _ in range(4):
        engine.step()
    assert not stream._results and not stream.finished
    results = list(stream)
    assert [result.answer for result in results] == [0] * 5 + [1] * 5
    assert [result.finish_reason for result in results] == ([None] * 4 + ["length"]) * 2
    assert stream.text == "".join(f"<{token}>" for token in stream.tokens) and engine.stats.answer_tokens == 10


def test_an_end_is_no_text_and_the_reason():
    engine = Engine(ToyRunner(64), decode=lambda ids: "".join(f"<{token}>" for token in ids), eos=list(range(16)))
    stream = engine.submit((1, 2, 3), Sampling(beams=3, n=3, max_tokens=30)).wait()
    for answer in stream.answers:
        assert answer.finish_reason == "stop" and answer.tokens[-1] < 16
        assert answer.text == "".join(f"<{token}>" for token in answer.tokens[:-1])


def test_beams_that_end_early():
    """Cancelled, failed, too long, not decodable; nobody else is disturbed."""
    runner = ToyRunner(64)
    engine = Engine(runner)
    plain = engine.submit((5, 6), Sampling(max_tokens=12))
    stream = engine.submit((1, 2, 3), Sampling(beams=4, n=2, max_tokens=9))
    for _ in range(3):
        engine.step()
    stream.cancel()
    check_pages(engine)
    assert [answer.finish_reason for answer in stream.answers] == ["cancelled"] * 2 and not stream.tokens
    assert plain.wait().finish_reason == "length"
    stream = engine.submit([1] * 64, Sampling(beams=4, n=2))
    assert "there is room for 63" in stream.error and len(list(stream)) == 2
    stream = engine.submit((1, 2, 3), Sampling(beams=4, n=2, max_tokens=9))
    engine.step()
    runner.failing = RuntimeError("out of luck")
    engine.step()
    runner.failing = None
    assert [answer.error for answer in stream.answers] == ["the step failed: RuntimeError: out of luck"] * 2
    engine.decode = lambda ids: [][1]
    stream = engine.submit((1, 2, 3), Sampling(beams=2, max_tokens=3)).wait()
    assert stream.error == "decoding failed: list index out of range"
    assert engine.idle and engine.stats.pages_used == 0


def test_logits_that_are_no_numbers_end_all_beams():
    class NotNumbers(ToyRunner):
        def run(self, chunks):
            logits = super().run(chunks)
            if len(self.steps) == 3:
                logits[-1] = torch.nan
            return logits

    engine = Engine(NotNumbers(64))
    stream = engine.submit((1, 2, 3), Sampling(beams=3, n=2)).wait()
    assert [answer.error for answer in stream.answers] == ["logits are not numbers"] * 2
    check_pages(engine)
    assert engine.stats.pages_used == 0


def test_more_beams_than_there_are_answers():
    stream = Engine(ToyRunner(64)).submit((1, 2), Sampling(beams=40, n=40, max_tokens=1)).wait()
    reasons = [answer.finish_reason for answer in stream.answers]
    assert reasons == ["length"] * 32 + ["error"] * 8
    assert stream.answers[39].error == "there are no more answers in so few tokens"


@pytest.mark.parametrize("guesses", [{"lookup": 3}, {"draft": ToyRunner(64)}])
def test_beams_get_no_guesses(guesses):
    prompt, sampling = (1, 2, 3, 4) * 3, Sampling(beams=3, n=3, max_tokens=9)
    engine = Engine(ToyRunner(64), **guesses)
    expected = Engine(ToyRunner(64)).submit(prompt, sampling).wait()
    assert answers_of(engine.submit(prompt, sampling).wait()) == answers_of(expected)
    assert engine.stats.guessed_tokens == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beams": 0}, "beams is an integer, 1 or more, not 0"),
        ({"beams": 2, "n": 3}, "n, 3, is more than beams, 2"),
        ({"beams": 2, "temperature": 1.0}, "beams go with none of best_of, temperature, logprobs, stop, penalties"),
        ({"beams": 2, "best_of": 2}, "beams go with none of"),
        ({"beams": 2, "repetition_penalty": 1.5}, "beams go with none of"),
        ({"beams": 2, "stop": ["x"]}, "beams go with none of"),
        ({"beams": 2, "early_stopping": "soon"}, "early_stopping is True, False or never, not 'soon'"),
        ({"length_penalty": float("inf")}, "length_penalty is a number, not infinite, not inf"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


def test_more_beams_than_sequences():
    with pytest.raises(ValueError, match="9 answers at a time cannot be computed; 8 can"):
        Engine(ToyRunner(), max_sequences=8).submit((1,), Sampling(beams=9))
    assert len(ENDS) < VOCABULARY
