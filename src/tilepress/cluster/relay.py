"""Answers of replicas on their way to clients.

A replica that dies before the first token of an answer costs nothing: another one is asked. After it, the stream ends
with an error. So no client reads parts of two answers.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from ..serve.errors import ApiError
from ..serve.events import event, is_opening

ATTEMPTS = 3  # replicas that are asked for one answer
LARGEST_BODY = 16 << 20  # bytes; replicas have limits of their own below it

Ask = Callable[[], AsyncGenerator[Message]]


class ReplicaDiedError(Exception):
    """A replica, or its node, went away with a request."""


class Relayed(Response):
    """A replica's answer. ask: has the request answered anew each time it is called; gives ASGI's messages, or raises
    ReplicaDiedError, or ApiError where it cannot be answered."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = died()
        for _ in range(ATTEMPTS):
            answer = _Answer(send)
            try:
                async with aclosing(self._ask()) as messages:
                    async for message in messages:
                        await answer.take(message)
                return
            except ReplicaDiedError:
                if answer.begun:
                    return await answer.fail(died())
            except ApiError as refused:
                if answer.begun:
                    return await answer.fail(refused)
                error = refused
                break
        await error_response(error)(scope, receive, send)


class _Answer:
    """Messages on their way to a client, held back until the first token, or until the answer is whole."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[Message] = []
        self._streams = self.begun = self._ended = False

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._streams = any(value.startswith(b"text/event-stream") for _, value in message["headers"])
        else:
            self._ended = not message.get("more_body", False)
            self.begun = self.begun or self._ended or (self._streams and not is_opening(message["body"]))
        self._held.append(message)
        while self.begun and self._held:
            await self._send(self._held.pop(0))

    async def fail(self, error: ApiError) -> None:
        """A stream's last event, if its end is missing."""
        if not self._ended:
            await self._send({"type": "http.response.body", "body": event(error.body), "more_body": False})


def died() -> ApiError:
    return ApiError(503, "the replica that answered died: try again", code="replica_died", retry_after=1)


def no_replica() -> ApiError:
    return ApiError(503, "no replica is running: try again later", code="no_replica", retry_after=5)


def error_response(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, error.headers)


async def read_whole(request: Request) -> bytes:
    """ApiError 413 if it is too long for any replica."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise ApiError(413, f"a request has at most {LARGEST_BODY} bytes", code="request_too_large")
    return bytes(body)


def joined(metrics: Mapping[str, str]) -> bytes:
    """One page for Prometheus of those of all replicas, each figure with the label `replica`."""
    families: dict[str, Metric] = {}
    for replica, page in metrics.items():
        for family in text_string_to_metric_families(page):
            kept = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            kept.samples += [one._replace(labels={**one.labels, "replica": replica}) for one in family.samples]
    registry = CollectorRegistry()
    registry.register(_Families(list(families.values())))
    return generate_latest(registry)


class _Families:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
