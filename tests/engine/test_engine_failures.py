"""What goes wrong beside the engine, and what is done from several threads or from inside of a step."""

import threading

import pytest
import torch
from tests.engine.toy import VOCABULARY, ToyRunner, check_pages, greedy

from tilepress.engine import Engine, Sampling

PROMPT = (1, 2, 3, 4, 5)


class PoisonedRunner(ToyRunner):
    """Logits of a chunk with a poisoned token are NaN."""

    poison = 31

    def run(self, chunks):
        logits = super().run(chunks)
        wanting = [chunk for chunk in chunks if chunk.logits]
        for place, chunk in enumerate(wanting):
            if self.poison in chunk.tokens:
                logits[place] = float("nan")
        return logits


@pytest.fixture
def runner():
    return ToyRunner()


@pytest.fixture
def engine(runner):
    return Engine(runner)


def test_a_runner_that_fails_ends_the_sequences_of_its_step_and_no_others(runner):
    engine = Engine(runner, step_tokens=8)
    first, second = engine.submit([1] * 8, Sampling(n=2)), engine.submit([2] * 8)
    waiting = engine.submit([3] * 8, Sampling(max_tokens=4))
    engine.step()
    runner.failing = MemoryError("no memory")
    engine.step()
    runner.failing = None
    assert [answer.finish_reason for answer in first.answers] == ["error", "error"]
    assert first.error == second.error == "the step failed: MemoryError: no memory"
    check_pages(engine)
    assert waiting.wait().tokens == greedy([3] * 8, 4) and engine.stats.pages_used == 0


@pytest.mark.parametrize(
    "wrong, message",
    [
        (torch.zeros(2, VOCABULARY), r"logits are float32 \[1, 32\], not torch.float32 \[2, 32\]"),
        (torch.zeros(1, 5), r"not torch.float32 \[1, 5\]"),
        (torch.zeros(1, VOCABULARY).double(), "not torch.float64"),
        (None, "AttributeError"),
    ],
)
def test_a_runner_that_gives_something_else(engine, runner, monkeypatch, wrong, message):
    monkeypatch.setattr(runner, "run", lambda chunks: wrong)
    stream = engine.submit(PROMPT).wait()
    assert stream.finish_reason == "error"
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(stream.error)


def test_an_interrupt_ends_the_step_and_is_passed_on(engine, runner):
    stream = engine.submit(PROMPT)
    runner.failing = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    runner.failing = None
    assert stream.finish_reason == "error" and engine.submit(PROMPT, Sampling(max_tokens=2)).wait().tokens


def test_logits_that_are_not_numbers_end_one_answer_and_its_pages_are_not_used_again():
    runner = PoisonedRunner()
    engine = Engine(runner)
    wrong, right = engine.submit([*PROMPT, 6, 7, 31, 8], Sampling(n=2)), engine.submit(PROMPT, Sampling(max_tokens=3))
    engine.run()
    assert [answer.error for answer in wrong.answers] == ["logits are not numbers"] * 2
    assert wrong.tokens == [] and right.tokens == greedy(PROMPT, 3)
    before = runner.computed  # the first page is there, from the answer that went right
    runner.poison = None
    again = engine.submit([*PROMPT, 6, 7, 31, 8], Sampling(max_tokens=1)).wait()
    assert again.tokens == greedy([*PROMPT, 6, 7, 31, 8], 1) and runner.computed == before + 5
    check_pages(engine)


def fail(_):
    raise OSError("out of order")


@pytest.mark.parametrize(
    "arguments, options, error",
    [
        ({}, {"mask": fail}, "the mask failed: out of order"),
        ({}, {"mask": lambda answer: torch.zeros(VOCABULARY, dtype=torch.bool)}, "no token is allowed"),
        ({"decode": fail}, {}, "decoding failed: out of order"),
    ],
)
def test_functions_that_fail_end_their_request_alone(arguments, options, error):
    engine = Engine(ToyRunner(), **arguments)
    wrong = engine.submit(PROMPT, Sampling(**options))
    engine.decode = None
    right = engine.submit(PROMPT, Sampling(max_tokens=4))
    engine.run()
    assert (wrong.finish_reason, wrong.error) == ("error", error) and right.tokens == greedy(PROMPT, 4)
    check_pages(engine)


def test_a_mask_cannot_wait_for_its_own_engine(engine):
    other = engine.submit(PROMPT, Sampling(max_tokens=3))
    stream = engine.submit(PROMPT, Sampling(mask=lambda answer: other.wait())).wait()
    assert stream.error == "the mask failed: a mask or a decode function cannot wait for the engine that calls it"
    assert other.wait().tokens == greedy(PROMPT, 3)


def test_a_mask_can_submit_and_cancel(engine):
    submitted = []

    def mask(answer):
        submitted.append(engine.submit([9], Sampling(max_tokens=2)))
        stream.cancel()

    stream = engine.submit(PROMPT, Sampling(mask=mask))
    engine.run()
    assert stream.finish_reason == "cancelled" and len(stream.tokens) == 1
    assert [one.tokens for one in submitted] == [greedy([9], 2)]


def test_threads_that_submit_iterate_and_cancel_together():
    engine, failures = Engine(ToyRunner(pages=64)), []

    def work(number):
        for turn in range(5):
            prompt = [number, turn, turn]
            stream = engine.submit(prompt, Sampling(max_tokens=12, temperature=0.0))
            tokens = [result.token for result, _ in zip(stream, range(12 if turn % 2 else 4), strict=False)]
            stream.cancel()
            if tokens != greedy(prompt, len(tokens)):
                failures.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)
    engine.run()
    check_pages(engine)
    assert engine.stats.pages_used == 0


def test_a_stream_waits_for_the_thread_that_steps(engine, runner):
    entered, leave = threading.Event(), threading.Event()

    def slowly():
        entered.set()
        assert leave.wait(60)

    runner.during = slowly
    stream = engine.submit(PROMPT, Sampling(max_tokens=1))
    stepping = threading.Thread(target=engine.step)
    stepping.start()
    assert entered.wait(60)
    reading = threading.Thread(target=stream.wait)
    reading.start()
    reading.join(0.05)
    assert reading.is_alive() and len(runner.steps) == 0
    leave.set()
    reading.join(60)
    stepping.join(60)
    assert stream.tokens == greedy(PROMPT, 1) and len(runner.steps) == 1
