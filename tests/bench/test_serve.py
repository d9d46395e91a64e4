"""An engine under load, on a toy with a clock of its own: every latency is known."""

import statistics

import pytest
from tests.engine.toy import PAGE_TOKENS, ToyRunner

from tilepress.bench import serve
from tilepress.bench.arrivals import Arrival, Lengths, Load, arrivals
from tilepress.bench.serve import PERCENTILES, Served, measure, percentiles
from tilepress.engine import Engine, Stream

FOUR, THREE, ONE = Lengths(4, 4), Lengths(3, 3), Lengths(1, 1)


class Clock:
    def __init__(self):
        self.now, self.slept = 100.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds


class TimedRunner(ToyRunner):
    """A step takes so many seconds, and some for each token."""

    def __init__(self, clock, step, token, **options):
        super().__init__(**options)
        self.clock, self.costs = clock, (step, token)

    def run(self, chunks):
        step, token = self.costs
        self.clock.now += step + token * sum(len(chunk.tokens) for chunk in chunks)
        return super().run(chunks)


@pytest.fixture
def clock():
    return Clock()


def engine_with(clock, step=1.0, token=0.0, **options):
    return Engine(TimedRunner(clock, step, token, **options), clock=clock)


def wrapped(engine, monkeypatch, when, what):
    """Calls `what` in the place of step number `when`, the one of the request that does not count being the first."""
    step, calls = engine.step, []

    def run():
        calls.append(1)
        return what() if len(calls) == when else step()

    monkeypatch.setattr(engine, "step", run)


def interrupt():
    raise KeyboardInterrupt


def test_one_request_at_a_time(clock):
    engine, finished = engine_with(clock), []
    load = Load(requests=2, concurrency=1, prompt=FOUR, tokens=THREE)
    result = measure(engine, load, lambda: finished.append(clock.now))
    assert result.latencies == {
        "time_to_first_token": [1.0, 1.0],
        "time_between_tokens": [1.0] * 4,
        "time_per_output_token": [1.0, 1.0],
        "request_time": [3.0, 3.0],
    }
    assert (result.requests, result.seconds, result.prompt_tokens, result.answer_tokens) == (2, 6.0, 8, 6)
    assert finished == [106.0, 109.0] and not result.interrupted  # the request that does not count takes 3 s
    assert result.steps == 6 and len(engine.runner.steps) == 9
    assert result.most_pages == 2 and result.pages == engine.runner.pages  # of 4 tokens; 6 are held before the last
    assert result.preemptions == 0 and 0 < result.scheduling_share < 1


@pytest.mark.parametrize("concurrency, seconds", [(1, 18.0), (2, 9.0), (3, 6.0), (6, 3.0), (99, 3.0)])
def test_as_many_in_flight_as_asked_for(clock, concurrency, seconds):
    """A step takes a second, whatever is in it."""
    engine = engine_with(clock, pages=64)
    result = measure(engine, Load(requests=6, concurrency=concurrency, prompt=FOUR, tokens=THREE))
    assert result.seconds == seconds and result.latencies["request_time"] == [3.0] * 6
    assert max(map(len, engine.runner.steps)) == min(concurrency, 6)


def test_a_request_waits_for_the_step_in_progress_and_delays_others(clock, monkeypatch):
    """A second a token. A: 4 s of prompt, then a token at 5; B's prompt of 6 goes with A's third token to 12; both
    end at 14. B came at 4.5, in the middle of a step."""
    coming = [Arrival(0.0, [1, 2, 3, 4], 4), Arrival(4.5, [5, 6, 7, 8, 9, 10], 2)]
    load = Load(requests=2, rate=1.0, prompt=Lengths(4, 6), tokens=Lengths(2, 4))
    engine = engine_with(clock, step=0.0, token=1.0)
    monkeypatch.setattr(serve, "arrivals", lambda load, vocabulary: iter(coming[: load.requests]))
    result = measure(engine, load, sleep=clock.sleep)
    assert result.latencies == {
        "time_to_first_token": [4.0, 7.5],
        "time_between_tokens": [1.0, 7.0, 2.0, 2.0],
        "time_per_output_token": [pytest.approx(10 / 3), 2.0],
        "request_time": [14.0, 9.5],
    }
    assert percentiles(result.latencies["time_between_tokens"])["max"] == 7.0
    assert result.seconds == 14.0 and not clock.slept


@pytest.mark.parametrize("rate", [0.2, 1.0, 5.0])
def test_requests_come_whether_others_are_finished_or_not(clock, rate):
    """Against a queue whose server takes a second for all that wait: requests of one token."""
    load = Load(requests=40, rate=rate, prompt=ONE, tokens=ONE)
    result = measure(engine_with(clock, pages=64), load, sleep=clock.sleep)
    coming = [one.seconds for one in arrivals(load, 32)]
    now, idle, expected = 0.0, 0.0, []
    while len(expected) < len(coming):
        first = coming[len(expected)]
        idle, now = idle + max(0.0, first - now), max(now, first)
        expected += [now + 1 - one for one in coming[len(expected) :] if one <= now]
        now += 1
    assert result.latencies["time_to_first_token"] == pytest.approx(expected)
    assert result.latencies["request_time"] == pytest.approx(expected)
    assert result.seconds == pytest.approx(now) and sum(clock.slept) == pytest.approx(idle)
    assert result.latencies["time_between_tokens"] == result.latencies["time_per_output_token"] == []


def test_a_sleep_that_ends_too_early_is_one_sleep(clock):
    """Else the steps that are allowed would be spent on waiting."""
    load = Load(requests=5, rate=0.001, prompt=ONE, tokens=ONE)
    measure(engine_with(clock), load, sleep=lambda seconds: clock.sleep(0.99 * seconds))
    assert len(clock.slept) == 4


def test_a_prefix_is_computed_once(clock):
    prefix = 2 * PAGE_TOKENS
    load = Load(requests=5, concurrency=1, prompt=Lengths(prefix + 1, prefix + 6), tokens=ONE, prefix=prefix)
    engine = engine_with(clock)
    result = measure(engine, load)
    lengths = [len(one.prompt) for one in arrivals(load, 32)]
    assert result.prompt_tokens == sum(lengths) and result.prefix_tokens == 4 * prefix
    computed = sum(len(chunk.tokens) for chunks in engine.runner.steps[-result.steps :] for chunk in chunks)
    assert computed == sum(lengths) - 4 * prefix


def test_too_few_pages_preempt(clock):
    load = Load(requests=6, concurrency=6, prompt=FOUR, tokens=Lengths(12, 12))
    result = measure(engine_with(clock, pages=8), load)
    assert result.requests == 6 and result.answer_tokens == 72
    assert result.preemptions > 0 and result.most_pages == result.pages == 8
    assert percentiles(result.latencies["time_between_tokens"])["max"] > 1


def test_an_interrupt_ends_it_with_what_was_measured(clock, monkeypatch):
    engine = engine_with(clock)
    wrapped(engine, monkeypatch, 3 + 5, interrupt)  # in the second request, after its first token
    result = measure(engine, Load(requests=9, concurrency=1, prompt=FOUR, tokens=THREE))
    assert result.interrupted and (result.requests, result.prompt_tokens, result.answer_tokens) == (1, 8, 4)
    assert result.seconds == 4.0 and result.latencies["request_time"] == [3.0]
    assert result.latencies["time_to_first_token"] == [1.0, 1.0]
    assert engine.idle and engine.stats.pages_used == 0


def test_an_interrupt_of_the_model_is_no_failure(clock, monkeypatch):
    engine = engine_with(clock)
    steps = engine.runner.steps
    engine.runner.during = lambda: interrupt() if len(steps) == 3 + 4 else None
    result = measure(engine, Load(requests=9, concurrency=2, prompt=FOUR, tokens=THREE))
    assert result.interrupted and result.requests == 2 and result.answer_tokens == 2 * 4
    assert engine.idle and engine.stats.pages_used == 0


def test_an_interrupt_while_nothing_is_to_be_done(clock):
    def sleep(seconds):
        raise KeyboardInterrupt

    result = measure(engine_with(clock), Load(requests=9, rate=0.001, prompt=FOUR, tokens=THREE), sleep=sleep)
    assert result.interrupted and result.requests == 1 and result.seconds == 3.0


def test_an_interrupt_before_anything_was_measured_goes_on(clock, monkeypatch):
    for when in (1, 3 + 1):
        engine = engine_with(clock)
        wrapped(engine, monkeypatch, when, interrupt)
        with pytest.raises(KeyboardInterrupt):
            measure(engine, Load(requests=2, concurrency=2, prompt=FOUR, tokens=THREE))
        assert engine.idle


def test_a_request_that_fails_is_an_error(clock):
    engine = engine_with(clock)
    steps = engine.runner.steps

    def fail():
        if len(steps) == 5:
            raise ValueError("it broke")

    engine.runner.during = fail
    with pytest.raises(RuntimeError, match="a request failed: the step failed: ValueError: it broke"):
        measure(engine, Load(requests=4, concurrency=1, prompt=FOUR, tokens=THREE))
    assert engine.idle


def test_an_engine_that_stands_still_is_given_up(clock, monkeypatch):
    engine = engine_with(clock)
    monkeypatch.setattr(engine, "step", lambda: True)
    with pytest.raises(RuntimeError, match="1 requests are not finished after 7 steps"):
        measure(engine, Load(requests=2, concurrency=2, prompt=FOUR, tokens=THREE))


@pytest.mark.parametrize("pages, room", [(16, 64), (5, 20)])
def test_requests_that_have_no_room(clock, pages, room):
    load = Load(requests=1, concurrency=1, prompt=Lengths(2, room - 3), tokens=Lengths(1, 4))
    expected = f"the model and its pages take {room} tokens, and {room - 3} of a prompt and 4 of an answer were asked"
    with pytest.raises(ValueError, match=expected):
        measure(engine_with(clock, pages=pages), load)
    fits = Load(requests=1, concurrency=1, prompt=Lengths(room - 4, room - 4), tokens=FOUR)
    assert measure(engine_with(clock, pages=pages), fits).answer_tokens == 4


@pytest.mark.parametrize("count", [2, 3, 64, 1000])
def test_percentiles(count):
    """Those of Python's statistics, which interpolate between the two nearest."""
    values = [((7919 * index) % 1009) / 8 for index in range(count)]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    expected = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(values)}
    assert percentiles(values) == pytest.approx(expected)


def test_percentiles_of_one_and_of_nothing():
    assert percentiles([2.5]) == dict.fromkeys(PERCENTILES, 2.5)
    assert percentiles([]) == {}


def test_several_tokens_of_one_step_come_together():
    served = Served(Stream(1, lambda ready: None, lambda: None), 4, 1.0)
    served.stream.answers[0].tokens += [7, 8]
    served.note(3.0)
    served.stream.answers[0].tokens += [9]
    served.note(4.5)
    assert served.times == [3.0, 3.0, 4.5] and served.gaps == [0.0, 1.5] and not served.finished
