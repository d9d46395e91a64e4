"""The engine: streams and how they end, several answers, shared prompts, deadlines, counts."""

import pytest
import torch
from tests.engine.toy import VOCABULARY, ToyRunner, check_pages, greedy, logits_of

import tilepress
from tilepress.engine import Engine, Sampling, Stream
from tilepress.engine.engine import KEPT

PROMPT = (1, 2, 3, 4, 5)


def decode(ids):
    return "".join(f"<{token}>" for token in ids)


@pytest.fixture
def runner():
    return ToyRunner()


@pytest.fixture
def engine(runner):
    return Engine(runner, decode=decode)


def test_it_is_exported():
    assert (tilepress.Engine, tilepress.Sampling, tilepress.Stream) == (Engine, Sampling, Stream)


def test_a_stream_drives_the_engine(engine):
    stream = engine.submit(PROMPT, Sampling(max_tokens=6))
    results = list(stream)
    expected = greedy(PROMPT, 6)
    assert [result.token for result in results] == stream.tokens == expected
    assert "".join(result.text for result in results) == stream.text == decode(expected)
    assert [result.finish_reason for result in results] == [None] * 5 + ["length"]
    assert stream.finish_reason == "length" and stream.finished and stream.error is None and engine.idle


def test_results_come_one_step_at_a_time(engine, runner):
    stream = engine.submit(PROMPT, Sampling(max_tokens=6))
    assert next(stream).token == greedy(PROMPT, 1)[0] and len(runner.steps) == 1 and not stream.finished


def test_run_goes_on_until_all_is_done(engine):
    streams = [engine.submit(PROMPT[:length], Sampling(max_tokens=7)) for length in range(1, 6)]
    engine.run()
    assert [stream.tokens for stream in streams] == [greedy(PROMPT[:length], 7) for length in range(1, 6)]
    assert engine.idle and not engine.step()


def test_without_max_tokens_an_answer_goes_on_to_the_longest_sequence():
    for runner in (ToyRunner(longest=20), ToyRunner(pages=5, longest=1000)):
        stream = Engine(runner).submit(PROMPT).wait()
        assert len(PROMPT) + len(stream.tokens) == 20 and stream.finish_reason == "length"


@pytest.mark.parametrize("pages, longest, room", [(16, 20, 19), (4, 64, 15)])
def test_a_prompt_that_can_never_fit_is_refused(pages, longest, room):
    engine = Engine(ToyRunner(pages, longest))
    stream = engine.submit([1] * (room + 1), Sampling(n=2))
    assert [result.finish_reason for result in stream] == ["error"] * 2 and engine.idle
    assert stream.error == f"the prompt has {room + 1} tokens, and there is room for {room}"
    assert engine.submit([1] * room).wait().tokens == greedy([1] * room, 1)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([],), "a prompt has one token or more"),
        (([1, VOCABULARY],), f"tokens are 0 … {VOCABULARY - 1}, not 1 … {VOCABULARY}"),
        (([-1],), f"tokens are 0 … {VOCABULARY - 1}, not -1 … -1"),
        (([1 << 70],), "a prompt has ids of tokens"),
        (([1.5],), "a prompt has ids of tokens, not"),
        (("text",), "this engine has no tokenizer: give ids of tokens"),
        (([1], Sampling(stop_tokens=[99])), f"stop_tokens: tokens are 0 … {VOCABULARY - 1}, not 99"),
        (([1], Sampling(logit_bias={99: 1.0})), f"logit_bias: tokens are 0 … {VOCABULARY - 1}, not 99"),
        (([1], Sampling(n=257)), "257 answers at a time cannot be computed; 256 can"),
        (([1], Sampling(stop=["x"])), "stop is found in text, and this engine has no decode"),
    ],
)
def test_what_makes_no_sense_is_an_error_and_changes_nothing(arguments, message):
    engine = Engine(ToyRunner())
    with pytest.raises(ValueError, match=message):
        engine.submit(*arguments)
    assert engine.idle


def test_arguments_that_make_no_sense(engine):
    with pytest.raises(ValueError, match="step_tokens, 0, and max_sequences, 256, are 1 or more"):
        Engine(ToyRunner(), step_tokens=0)
    for wrong in (float("nan"), "soon"):
        with pytest.raises(ValueError, match=f"deadline is a time in seconds, not '?{wrong}'?"):
            engine.submit(PROMPT, deadline=wrong)
    with pytest.raises(ValueError, match=r"priority is an integer, not 0.5"):
        engine.submit(PROMPT, priority=0.5)


def test_stop_tokens_and_eos_end_an_answer():
    expected = greedy(PROMPT, 20)
    token = expected[5]
    ended = expected[: expected.index(token) + 1]
    for eos, options in (([], {"stop_tokens": [token]}), ([token], {}), ([token], {"max_tokens": 50})):
        stream = Engine(ToyRunner(), eos=eos, decode=decode).submit(PROMPT, Sampling(**options)).wait()
        assert (stream.tokens, stream.finish_reason) == (ended, "stop") and stream.text == decode(ended[:-1])
    ignoring = Engine(ToyRunner(), eos=[token]).submit(PROMPT, Sampling(ignore_eos=True, max_tokens=20)).wait()
    assert (ignoring.tokens, ignoring.finish_reason) == (expected, "length")


def test_texts_end_an_answer(engine):
    expected = greedy(PROMPT, 20)
    first = next(place for place in range(1, 20) if expected[place] not in expected[:place])
    stop = f"{expected[first - 1]}><{expected[first]}"  # over two tokens, and not to the end of the second
    stream = engine.submit(PROMPT, Sampling(stop=[stop])).wait()
    assert stream.finish_reason == "stop" and stream.tokens == expected[: first + 1]
    assert stream.text == decode(expected[: first + 1]).split(stop)[0]
    assert "".join(result.text for result in stream) == stream.text


def test_text_that_is_held_back_is_given_when_the_answer_ends(engine):
    expected = greedy(PROMPT, 4)
    stop = decode(expected)[2:] + "and more"
    for options, reason in (({"max_tokens": 4}, "length"), ({}, "cancelled")):
        stream = engine.submit(PROMPT, Sampling(stop=[stop], **options))
        for _ in range(4):
            engine.step()
        stream.cancel()
        assert stream.finish_reason == reason and stream.text == decode(expected)


def test_log_probabilities(engine):
    stream = engine.submit(PROMPT, Sampling(max_tokens=3, logprobs=2))
    for result, place in zip(stream, range(3), strict=False):
        wanted = logits_of((*PROMPT, *greedy(PROMPT, place))).log_softmax(-1)
        assert result.logprob == pytest.approx(wanted.max().item(), abs=1e-5)
        assert [token for token, _ in result.top] == wanted.topk(2).indices.tolist()
    assert len(stream.answers[0].logprobs) == 3


def test_a_mask_sees_the_answer_so_far(engine):
    seen = []

    def mask(answer):
        seen.append(list(answer))
        return torch.arange(VOCABULARY) == 10 + len(answer)

    assert engine.submit(PROMPT, Sampling(max_tokens=3, mask=mask)).wait().tokens == [10, 11, 12]
    assert seen == [[], [10], [10, 11]]


def test_several_answers_share_the_prompt_and_differ(engine, runner):
    options = {"max_tokens": 8, "temperature": 1.0, "seed": 5}
    stream = engine.submit(PROMPT, Sampling(n=3, **options)).wait()
    assert runner.computed == len(PROMPT) + 3 * 7
    assert len({tuple(answer.tokens) for answer in stream.answers}) == 3
    for index, answer in enumerate(stream.answers):
        assert [result.token for result in stream._results if result.answer == index] == answer.tokens
    assert stream.tokens == engine.submit(PROMPT, Sampling(**options)).wait().tokens


def test_the_best_answers_are_those_with_the_highest_mean_log_probability(engine):
    options = {"max_tokens": 8, "temperature": 2.0, "seed": 5}
    every = engine.submit(PROMPT, Sampling(n=6, logprobs=0, **options)).wait().answers
    best = sorted(every, key=lambda answer: -sum(answer.logprobs) / len(answer.logprobs))[:2]
    stream = engine.submit(PROMPT, Sampling(n=2, best_of=6, **options))
    engine.step()
    assert not stream._results and not stream.finished
    assert [answer.tokens for answer in stream.wait().answers] == [answer.tokens for answer in best]
    assert {result.answer for result in stream} == {0, 1}


def test_seeds(engine):
    def text(seed):
        return engine.submit(PROMPT, Sampling(max_tokens=20, temperature=1.0, seed=seed)).wait().tokens

    assert text(1) == text(1) != text(2)
    assert text(None) != text(None)


def test_the_gap_between_two_tokens_is_one_step_whatever_prompts_arrive():
    runner = ToyRunner(pages=400, longest=200)
    engine = Engine(runner, step_tokens=8)
    stream = engine.submit(PROMPT, Sampling(max_tokens=60))
    next(stream)
    for index in range(10):
        engine.submit([index] * 150, Sampling(max_tokens=5), priority=index % 3)
    for count in range(2, 61):
        engine.step()
        assert len(stream.tokens) == count
    assert all(sum(len(chunk.tokens) for chunk in chunks) <= 8 for chunks in runner.steps)


def test_a_shared_prefix_is_computed_once_among_requests_at_a_time_and_later():
    runner = ToyRunner(pages=100)
    engine = Engine(runner)
    prefix = list(range(20))
    for _ in range(2):
        streams = [engine.submit([*prefix, token], Sampling(max_tokens=1)) for token in range(10)]
        engine.run()
        assert [stream.tokens for stream in streams] == [greedy([*prefix, token], 1) for token in range(10)]
    assert runner.computed == 20 + 2 * 10 and engine.stats.prefix_tokens == 20 * 19


def test_preempted_answers_are_what_they_would_have_been():
    runner = ToyRunner(pages=8)
    engine = Engine(runner)
    options = [{"temperature": 1.0, "seed": seed, "max_tokens": 15} for seed in range(4)]
    streams = [engine.submit([seed] * 6, Sampling(**one)) for seed, one in enumerate(options)]
    engine.run()
    assert engine.stats.preemptions > 0
    for seed, (stream, one) in enumerate(zip(streams, options, strict=True)):
        assert stream.tokens == Engine(ToyRunner(64)).submit([seed] * 6, Sampling(**one)).wait().tokens


def test_cancelled_before_between_and_during_steps(engine, runner):
    before, between, during, other = (engine.submit([token] * 5, Sampling(max_tokens=6)) for token in range(4))
    before.cancel()
    assert before.finish_reason == "cancelled" and before.tokens == []
    engine.step()
    between.cancel()
    assert between.finish_reason == "cancelled" and between.tokens == greedy([1] * 5, 1)
    runner.during = during.cancel
    engine.step()
    assert during.finish_reason == "cancelled" and during.tokens == greedy([2] * 5, 1)
    runner.during = None
    check_pages(engine)
    assert other.wait().tokens == greedy([3] * 5, 6) and [result.token for result in before] == [None]
    other.cancel()
    assert other.finish_reason == "length"


def test_all_answers_end_even_before_their_prompt_is_computed(runner):
    engine = Engine(runner, step_tokens=4)
    several, best = engine.submit([1] * 9, Sampling(n=3)), engine.submit([2] * 9, Sampling(n=2, best_of=4))
    engine.step()
    several.cancel()
    best.cancel()
    assert [answer.finish_reason for answer in several.answers] == ["cancelled"] * 3
    assert [result.answer for result in best] == [0, 1] and best.finished and engine.idle
    check_pages(engine)


def test_deadlines(runner):
    now = [10.0]
    engine = Engine(runner, clock=lambda: now[0])
    early, late = engine.submit(PROMPT, deadline=11.0), engine.submit(PROMPT, Sampling(max_tokens=9), deadline=99.0)
    engine.step()
    engine.step()
    now[0] = 11.0
    engine.step()
    assert early.finish_reason == "deadline" and early.tokens == greedy(PROMPT, 2)
    assert late.wait().finish_reason == "length"
    assert engine.submit(PROMPT, deadline=11.0).wait().tokens == []
    check_pages(engine)


def test_counts(engine):
    streams = [engine.submit([*PROMPT, token], Sampling(max_tokens=3)) for token in range(2)]
    engine.step()
    assert engine.stats.pages_used == 4
    engine.run()
    stats = engine.stats
    assert (stats.steps, stats.tokens, stats.answer_tokens) == (4, 6 + 2 + 4, 6)
    assert (stats.prefix_tokens, stats.preemptions, stats.pages_used, stats.pages_free) == (4, 0, 0, 16)
    assert stats.runner_seconds > 0 and stats.own_seconds > 0 and all(stream.finished for stream in streams)


def test_prompts_that_begin_alike_where_pages_are_not_fixed():
    """The second goes on from where a chunk ended, and ends one where it parts; the third goes on from there."""
    start = [1, 2, 3, 4] * 5
    engine = Engine(ToyRunner(fixed_pages=False, pages=64), step_tokens=8)
    found = []
    for last in (5, 6, 7, 8):
        prompt = [*start, last, last, last]
        before = engine.stats.prefix_tokens
        assert engine.submit(prompt, Sampling(max_tokens=3, temperature=0)).wait().tokens == greedy(prompt, 3)
        found.append(engine.stats.prefix_tokens - before)
        check_pages(engine)
    assert found == [0, 16, 20, 20]


def test_pages_that_are_kept_are_few():
    engine = Engine(ToyRunner(fixed_pages=False, pages=64), step_tokens=4)
    for first in range(9):
        engine.submit([first] * 30, Sampling(max_tokens=2, temperature=0)).wait()
        check_pages(engine)
    assert len(engine.scheduler.shared.kept) == engine.scheduler.shared.most_kept == 64 // KEPT
    assert engine.stats.pages_free == 64
