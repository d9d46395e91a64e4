"""The one thread that steps an engine, and the way of its results to the event loop."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from threading import Condition, Thread

from ..engine import Engine, Result, Sampling, Stream
from .errors import ApiError, internal
from .meter import Meter, Times

Batch = list[tuple[int, Result]]  # results of a step, each with the number of its answer
_LOG = logging.getLogger(__name__)


class Feed:
    """Results of one HTTP request, which may have several prompts: batches, one a step at most.

    A client that reads slowly holds nothing up: what it has not read waits here, an answer's length at most.
    """

    def __init__(self, streams: Sequence[Stream], prompt_tokens: int) -> None:
        self.streams, self.prompt_tokens, self.times = streams, prompt_tokens, Times()
        self.answers = sum(len(stream.answers) for stream in streams)
        self._batches: asyncio.Queue[Batch | ApiError] = asyncio.Queue()

    @property
    def answer_tokens(self) -> int:
        return sum(len(answer.tokens) for stream in self.streams for answer in stream.answers)

    def error(self, answer: int) -> str | None:
        """What went wrong with an answer."""
        return [one.error for stream in self.streams for one in stream.answers][answer]

    async def batches(self) -> AsyncIterator[Batch]:
        """Until all answers are finished; ApiError where one goes wrong."""
        unfinished = self.answers
        while unfinished:
            batch = await self._batches.get()
            if isinstance(batch, ApiError):
                raise batch
            unfinished -= sum(result.finish_reason is not None for _, result in batch)
            yield batch

    def cancel(self) -> None:
        for stream in self.streams:
            stream.cancel()

    def end(self, error: ApiError) -> None:
        """For the event loop: the request ends with an error."""
        self._batches.put_nowait(error)
        self.cancel()

    def take(self) -> Batch:
        """For the driver: what came since."""
        batch, first = [], 0
        for stream in self.streams:
            batch += [(first + result.answer, result) for result in stream.take()]
            first += len(stream.answers)
        return batch

    @property
    def finished(self) -> bool:
        return all(stream.finished for stream in self.streams)

    def put(self, batch: Batch | ApiError) -> None:
        self._batches.put_nowait(batch)


class Driver:
    """Steps an engine while there are requests, and sleeps otherwise.

    Args:
        engine: nothing else steps it.
        meter: what is measured of it.
    """

    def __init__(self, engine: Engine, meter: Meter) -> None:
        self.engine, self.meter, self.failed = engine, meter, False
        self._changed = Condition()
        self._feeds: list[Feed] = []
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run, name="tilepress-engine", daemon=True)
        self._thread.start()

    def submit(self, prompts: Sequence[Sequence[int]], sampling: Sampling, deadline: float) -> Feed:
        """Of the event loop. ValueError, or ApiError, where the engine takes one of them not; then none is computed."""
        streams: list[Stream] = []
        try:
            for prompt in prompts:
                streams.append(self.engine.submit(prompt, sampling, deadline=deadline))
        except ValueError:
            for stream in streams:
                stream.cancel()
            raise
        feed = Feed(streams, sum(map(len, prompts)))
        with self._changed:
            if self.failed:
                raise internal()
            self._feeds.append(feed)
            self._changed.notify()
        return feed

    def end_all(self, error: ApiError) -> None:
        """Of the event loop: every request ends with an error."""
        with self._changed:
            feeds = list(self._feeds)
        for feed in feeds:
            feed.end(error)

    def close(self) -> None:
        """Waits for the thread's end, and that of the engine's other processes."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self.engine.close()

    def _run(self) -> None:
        try:
            while self._wait():
                self.engine.step()
                self._deliver()
        except BaseException:
            _LOG.exception("the engine failed")
            self._fail()

    def _wait(self) -> bool:
        """Until there are requests. Returns whether to go on."""
        with self._changed:
            self._changed.wait_for(lambda: self._feeds or self._closed)
            return not self._closed

    def _deliver(self) -> None:
        """All results of a step in one call of the event loop."""
        self.meter.stepped(self.engine.stats)
        with self._changed:
            feeds = list(self._feeds)
        now = time.monotonic()
        ready: list[tuple[Feed, Batch | ApiError]] = []
        for feed in feeds:
            finished = feed.finished  # before the last results are taken
            batch = feed.take()
            self._measure(feed, batch, now)
            if batch:
                ready.append((feed, batch))
            if finished:
                self.meter.finished(feed.times, now)
                self._forget(feed)
        if ready:
            self._loop.call_soon_threadsafe(_put, ready)

    def _measure(self, feed: Feed, batch: Batch, now: float) -> None:
        for answer, result in batch:
            if result.token is not None:
                self.meter.token(feed.times, answer, feed.prompt_tokens, now)
            if result.finish_reason is not None:
                self.meter.answered(feed.times, answer, result.finish_reason)

    def _forget(self, feed: Feed) -> None:
        with self._changed:
            self._feeds.remove(feed)

    def _fail(self) -> None:
        with self._changed:
            self.failed, feeds = True, list(self._feeds)
        ended: list[tuple[Feed, Batch | ApiError]] = [(feed, internal()) for feed in feeds]
        self._loop.call_soon_threadsafe(_put, ended)


def _put(ready: list[tuple[Feed, Batch | ApiError]]) -> None:
    for feed, batch in ready:
        feed.put(batch)
