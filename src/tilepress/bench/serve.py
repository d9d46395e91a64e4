"""How an engine serves many requests at once: how long each waits for its tokens, and how many tokens there are a
second."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

import numpy as np

from ..engine import Engine, Sampling, Stats, Stream
from ..models import load_model
from ..models.checkpoint_checks import NOTHING, Allowed
from .arrivals import Arrival, Load, arrivals

Latencies = Mapping[str, Sequence[float]]  # metric → seconds
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}  # by statistic


@dataclass(frozen=True)
class Result:
    """What was measured until the last request had its last token, or until an interrupt.

    requests: those that were finished. prompt_tokens: of requests that have a token. seconds: since the first one came.
    latencies: metric → seconds of each request; `time_between_tokens` has those between any two tokens of an answer.
    scheduling_share: of the time of steps, what is not the model's.
    prefix_tokens: found in pages, and not computed. most_pages: in use after a step.
    """

    requests: int
    prompt_tokens: int
    answer_tokens: int
    seconds: float
    latencies: Latencies
    steps: int
    scheduling_share: float
    prefix_tokens: int
    preemptions: int
    most_pages: int
    pages: int
    interrupted: bool


@dataclass
class Served:
    """A request in the engine. start: when it came. times: when each of its tokens did. All are in seconds of the
    engine's clock."""

    stream: Stream
    prompt: int
    start: float
    times: list[float] = field(default_factory=list)
    finished: bool = False

    def note(self, now: float) -> None:
        """A step has ended."""
        if self.stream.error is not None:
            raise RuntimeError(f"a request failed: {self.stream.error}")
        self.times += [now] * (len(self.stream.tokens) - len(self.times))
        self.finished = self.stream.finished

    @property
    def gaps(self) -> list[float]:
        """Between tokens."""
        return [after - before for before, after in pairwise(self.times)]


def open_engine(
    name: str,
    *,
    kv: str | None = None,
    kv_memory: str = "4 GiB",
    threads: int | None = None,
    allowed: Allowed = NOTHING,
) -> Engine:
    """Of the model called `name`."""
    model = load_model(name, **asdict(allowed)).model
    return Engine(model, kv, kv_memory=kv_memory, threads=threads)


def measure(
    engine: Engine,
    load: Load,
    step: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """All requests of the load, after one that does not count: memory is touched for the first time in it.

    Args:
        step: called when a request is finished.
        sleep: waits so many seconds of the engine's clock.
    """
    if load.longest > engine.longest:
        raise ValueError(
            f"the model and its pages take {engine.longest} tokens, and {load.prompt.most} of a prompt and "
            f"{load.tokens.most} of an answer were asked for: give shorter ones"
        )
    _Run(engine, replace(load, requests=1, rate=None, concurrency=1, prefix=0, seed=load.seed + 1)).run()
    before, run, interrupted = engine.stats, _Run(engine, load, step, sleep), False
    try:
        run.run()
    except KeyboardInterrupt:
        if run.ended == run.began:
            raise
        interrupted = True
    return run.result(before, interrupted)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Statistic → seconds; nothing of nothing."""
    if not seconds:
        return {}
    return {statistic: float(np.percentile(seconds, rank)) for statistic, rank in PERCENTILES.items()}


class _Run:
    """Submits what has come, lets the engine step, and notes which tokens there are then; one after another."""

    def __init__(
        self,
        engine: Engine,
        load: Load,
        step: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.engine, self.load, self.step, self.sleep = engine, load, step, sleep
        self.arrivals = arrivals(load, engine.runner.vocabulary)
        self.next = next(self.arrivals, None)
        self.served: list[Served] = []
        self.live: list[Served] = []
        self.most_pages = 0
        self.began = self.ended = engine.clock()

    def run(self) -> None:
        try:
            for _ in range(self.load.most_steps):
                self._submit_due()
                self.engine.step()
                self._note()
                if not self.live and self.next is None:
                    return
            raise RuntimeError(f"{len(self.live)} requests are not finished after {self.load.most_steps} steps")
        finally:
            for one in self.live:
                one.stream.cancel()

    def result(self, before: Stats, interrupted: bool) -> Result:
        """before: the engine's, when the run began."""
        after = self.engine.stats
        own, runner = after.own_seconds - before.own_seconds, after.runner_seconds - before.runner_seconds
        return Result(
            requests=sum(one.finished for one in self.served),
            prompt_tokens=sum(one.prompt for one in self.served if one.times),
            answer_tokens=sum(len(one.times) for one in self.served),
            seconds=self.ended - self.began,
            latencies=_latencies(self.served),
            steps=after.steps - before.steps,
            scheduling_share=own / (own + runner),
            prefix_tokens=after.prefix_tokens - before.prefix_tokens,
            preemptions=after.preemptions - before.preemptions,
            most_pages=self.most_pages,
            pages=self.engine.runner.pages,
            interrupted=interrupted,
        )

    def _submit_due(self) -> None:
        """Waits for a request if there is none."""
        now = self.engine.clock()
        if self.next is not None and not self.live and self.began + self.next.seconds > now:
            self.sleep(self.began + self.next.seconds - now)
            now = self.began + self.next.seconds
        while self.next is not None and len(self.live) < self.load.most_live and self.began + self.next.seconds <= now:
            self._submit(self.next, now)
            self.next = next(self.arrivals, None)

    def _submit(self, arrival: Arrival, now: float) -> None:
        """A request of a rate came when it had to, maybe in the middle of a step."""
        start = now if self.load.rate is None else self.began + arrival.seconds
        stream = self.engine.submit(arrival.prompt, Sampling(max_tokens=arrival.tokens, ignore_eos=True))
        self.live.append(Served(stream, len(arrival.prompt), start))
        self.served.append(self.live[-1])

    def _note(self) -> None:
        self.ended = self.engine.clock()
        self.most_pages = max(self.most_pages, self.engine.stats.pages_used)
        for one in self.live:
            one.note(self.ended)
        finished = sum(one.finished for one in self.live)
        self.live = [one for one in self.live if not one.finished]
        for _ in range(finished):
            self.step()


def _latencies(served: Sequence[Served]) -> dict[str, list[float]]:
    finished = [one for one in served if one.finished]
    several = [one for one in finished if len(one.times) > 1]
    return {
        "time_to_first_token": [one.times[0] - one.start for one in served if one.times],
        "time_between_tokens": [gap for one in served for gap in one.gaps],
        "time_per_output_token": [(one.times[-1] - one.times[0]) / (len(one.times) - 1) for one in several],
        "request_time": [one.times[-1] - one.start for one in finished],
    }
