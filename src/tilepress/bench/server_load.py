"""A server under load, seen from outside: any that streams completions as OpenAI's API has them."""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import pairwise
from random import Random
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from .arrivals import Arrival, Load, arrivals
from .serve import Latencies

IDS = 256  # prompts have tokens below this, which every vocabulary has
SLOW_PART = 0.1  # seconds that a slow client takes for a part of the answer
MEMORY_EVERY = 2.0  # seconds
_PATIENCE = 600.0  # seconds without a byte
_MOST_AT_ONCE = 1024


@dataclass(frozen=True)
class Clients:
    """leaving: share of requests whose client goes in the middle of the answer. slow: share whose client takes a part
    of its answer every SLOW_PART seconds; they count in no latency. checked: so many answers are asked for again when
    all is over, each alone, and compared."""

    leaving: float = 0.0
    slow: float = 0.0
    checked: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.leaving <= 1 and 0 <= self.slow <= 1 and self.leaving + self.slow <= 1):
            raise ValueError("--disconnect and --slow are shares of the requests, 0 to 1, and not more than 1 together")


@dataclass(frozen=True)
class ServerResult:
    """What clients saw until the last request ended, or until an interrupt.

    requests: those that were finished. failed: refused, or ended by an error; reason: of the first one. left: whose
    client went before their end. answer_tokens: as the server counts them, those of clients that went not among them.
    seconds: since the first one came. checked: answers that were asked for again, alone; different: of these, those
    with another text. memory: bytes of the server's process after so many seconds, if it says that.
    """

    requests: int
    failed: int
    left: int
    reason: str | None
    prompt_tokens: int
    answer_tokens: int
    seconds: float
    latencies: Latencies
    checked: int
    different: int
    memory: Mapping[float, float]
    interrupted: bool

    @property
    def memory_by_minutes(self) -> dict[int, float]:
        """Most bytes in the first minute, the first two, five, ten …, and in all; empty if nothing is known."""
        last = max(self.memory, default=0.0) / 60
        marks = [mark * 10**power for power in range(6) for mark in (1, 2, 5)]
        early = [mark for mark in marks if mark < last]
        return {
            mark: max(nbytes for seconds, nbytes in self.memory.items() if seconds <= 60 * mark)
            for mark in (*early, *[math.ceil(last)] * bool(self.memory))
        }


@dataclass
class Asked:
    """A request. start: when it was sent. times: when a part of its answer came. ended: when all of it was there."""

    arrival: Arrival
    slow: bool
    start: float
    text: str = ""
    times: list[float] = field(default_factory=list)
    ended: float = 0.0
    tokens: int = 0
    error: str | None = None
    left: bool = False

    @property
    def prompt(self) -> int:
        return len(self.arrival.prompt)

    @property
    def finished(self) -> bool:
        return self.error is None and not self.left


class Server:
    """Where to ask.

    Args:
        url: http://127.0.0.1:8000, say; /v1 at its end is added if it is not there. The environment's OPENAI_API_KEY is
            its key.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a server's address is like http://127.0.0.1:8000, not {url!r}")
        self._parts = parts
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            self._headers["Authorization"] = f"Bearer {key}"

    def model(self) -> str:
        """The first of those that it has. RuntimeError if there is no such server."""
        try:
            with closing(self._connect()) as connection:
                connection.request("GET", f"{self._path}/models", headers=self._headers)
                answer = json.load(_checked(connection.getresponse()))
            return str(answer["data"][0]["id"])
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
            raise RuntimeError(
                f"{self._parts.netloc} does not say which models it has ({error}): check that it runs"
            ) from error

    def memory(self) -> float | None:
        """Bytes of its process, where /metrics has them as Prometheus' clients do."""
        try:
            with closing(self._connect()) as connection:
                connection.request("GET", f"{self._path.removesuffix('/v1')}/metrics", headers=self._headers)
                text = _checked(connection.getresponse()).read().decode()
        except (OSError, HTTPException, ValueError):
            return None
        match = re.search(r"^process_resident_memory_bytes ([0-9.e+]+)$", text, re.M)
        return float(match[1]) if match else None

    def ask(self, model: str, arrival: Arrival, leave_after: int | None = None, slow: bool = False) -> Asked:
        """leave_after: parts of the answer after which the client goes."""
        asked = Asked(arrival, slow, time.perf_counter())
        try:
            with closing(self._connect()) as connection:
                connection.request("POST", f"{self._path}/completions", _body(model, arrival), self._headers)
                for event in _events(_checked(connection.getresponse())):
                    _note(asked, event)
                    time.sleep(SLOW_PART if slow else 0)
                    if leave_after is not None and len(asked.times) >= leave_after:
                        asked.left = True
                        break
        except (OSError, HTTPException, ValueError) as error:
            asked.error = str(error) or type(error).__name__
        asked.ended = time.perf_counter()
        return asked

    def _connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=_PATIENCE)


def measure_server(
    server: Server, load: Load, clients: Clients | None = None, step: Callable[[], None] = lambda: None
) -> ServerResult:
    """All requests of the load, after one that does not count; a thread for each that is in flight.

    Args:
        step: called when a request has ended.
    """
    clients = clients or Clients()
    model = server.model()
    first = replace(load, requests=1, rate=None, concurrency=1, prefix=0, seed=load.seed + 1)
    warm = server.ask(model, next(arrivals(first, IDS)))
    if warm.error is not None:
        raise RuntimeError(f"the server does not answer: {warm.error}")
    began, asked = time.perf_counter(), list[Asked]()
    with _memory_noted(server) as memory, ThreadPoolExecutor(min(load.most_live, _MOST_AT_ONCE)) as pool:
        futures: list[Future[Asked]] = []
        try:
            for arrival, leave_after, slow in _behaving(load, clients):
                time.sleep(max(0.0, began + arrival.seconds - time.perf_counter()))
                futures.append(pool.submit(server.ask, model, arrival, leave_after, slow))
            for future in as_completed(futures):
                asked.append(future.result())
                step()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            if not asked:
                raise
    interrupted = len(asked) < load.requests
    finished = [one for one in asked if one.finished]
    checked = [] if interrupted else Random(load.seed).sample(finished, min(clients.checked, len(finished)))
    different = sum(server.ask(model, one.arrival).text != one.text for one in checked)
    return _result(asked, began, len(checked), different, memory, interrupted)


@contextmanager
def _memory_noted(server: Server) -> Iterator[dict[float, float]]:
    """Of the server, by the seconds that have passed."""
    memory: dict[float, float] = {}
    stopped, began = Event(), time.perf_counter()

    def note() -> None:
        while (nbytes := server.memory()) is not None:
            memory[time.perf_counter() - began] = nbytes
            if stopped.wait(MEMORY_EVERY):
                return

    thread = Thread(target=note, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        stopped.set()
        thread.join()


def _behaving(load: Load, clients: Clients) -> Iterator[tuple[Arrival, int | None, bool]]:
    """Requests, parts after which their clients go, and whether these are slow."""
    random = Random(load.seed)
    for arrival in arrivals(load, IDS):
        share = random.random()
        leaves, slow = share < clients.leaving, share >= 1 - clients.slow
        yield arrival, random.randint(1, max(1, arrival.tokens // 2)) if leaves else None, slow


def _result(
    asked: list[Asked], began: float, checked: int, different: int, memory: Mapping[float, float], interrupted: bool
) -> ServerResult:
    finished, errors = [one for one in asked if one.finished], [one.error for one in asked if one.error is not None]
    brisk = [one for one in asked if not one.slow]
    whole = [one for one in brisk if one.finished]
    return ServerResult(
        requests=len(finished),
        failed=len(errors),
        left=sum(one.left for one in asked),
        reason=errors[0] if errors else None,
        prompt_tokens=sum(one.prompt for one in finished),
        answer_tokens=sum(one.tokens for one in finished),
        seconds=max(one.ended for one in asked) - began,
        latencies={
            "time_to_first_token": [one.times[0] - one.start for one in whole if one.times],
            "time_between_tokens": [after - before for one in brisk for before, after in pairwise(one.times)],
            "time_per_output_token": [
                (one.times[-1] - one.times[0]) / (one.tokens - 1)
                for one in whole
                if one.tokens > 1 and len(one.times) > 1
            ],
            "request_time": [one.ended - one.start for one in whole],
        },
        checked=checked,
        different=different,
        memory=memory,
        interrupted=interrupted,
    )


def _body(model: str, arrival: Arrival) -> str:
    return json.dumps(
        {
            "model": model,
            "prompt": arrival.prompt,
            "max_tokens": arrival.tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def _checked(response: HTTPResponse) -> HTTPResponse:
    if response.status != 200:
        raise ValueError(f"status {response.status}: {response.read(400).decode(errors='replace')}")
    return response


def _events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data:") and not line.startswith(b"data: [DONE]"):
            yield json.loads(line[5:])


def _note(asked: Asked, event: dict[str, Any]) -> None:
    """ValueError for an error."""
    if "error" in event:
        raise ValueError(str(event["error"]))
    if text := "".join(choice.get("text") or "" for choice in event.get("choices") or ()):
        asked.times.append(time.perf_counter())
        asked.text += text
    if event.get("usage"):
        asked.tokens = int(event["usage"]["completion_tokens"])
