"""Answers over HTTP: as one object, or as a stream of server-sent events."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from .. import __version__
from .deltas import deltas
from .driver import Feed
from .errors import ApiError
from .events import event
from .job import Choice, Job

_DONE = b"data: [DONE]\n\n"
_GRACE = 10.0  # seconds after a request's deadline until a client has to have read its answer


class Reply:
    """Of one request, whose feed belongs to its job."""

    def __init__(self, job: Job, feed: Feed, model: str) -> None:
        self._job, self._feed = job, feed
        self._id = f"{job.form.id_prefix}-{secrets.token_hex(12)}"
        self._created, self._model = int(time.time()), model

    async def whole(self) -> Response:
        pieces: dict[int, list[Choice]] = {}
        async for piece in self._pieces():
            pieces.setdefault(piece["index"], []).append(piece)
        choices = [self._job.form.whole(pieces[answer]) for answer in sorted(pieces)]
        return JSONResponse(self._object(self._job.form.name, choices) | {"usage": usage(self._feed)})

    async def events(self, includes_usage: bool) -> AsyncIterator[bytes]:
        """The last one is an error where something goes wrong."""
        name, rest = self._job.form.chunk_name, {"usage": None} if includes_usage else {}
        try:
            async for piece in self._pieces():
                yield event(self._object(name, [piece]) | rest)
            if includes_usage:
                yield event(self._object(name, []) | {"usage": usage(self._feed)})
            yield _DONE
        except ApiError as error:
            yield event(error.body)

    async def _pieces(self) -> AsyncIterator[Choice]:
        for piece in self._job.form.opening():
            yield piece
        async for delta in deltas(self._feed, self._job.readers):
            yield self._job.form.piece(delta)

    def _object(self, name: str, choices: list[Choice]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": name,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": f"tilepress-{__version__}",
            "choices": choices,
        }


class EventStream(Response):
    """Sends events as they come. The request's `stack` is closed at the end, which comes in `seconds` even if the
    client does not read."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], feed: Feed, stack: AsyncExitStack, seconds: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._feed, self._stack, self._seconds = events, feed, stack, seconds + _GRACE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack, asyncio.timeout(self._seconds):
            with cancelled_when_gone(receive, self._feed):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                async for event in self._events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextmanager
def cancelled_when_gone(receive: Receive, feed: Feed) -> Iterator[None]:
    """The engine stops to compute what nobody will read: when the client goes, and when the block ends early."""
    watch = asyncio.create_task(_watch(receive, feed))
    try:
        yield
    finally:
        watch.cancel()
        if not feed.finished:
            feed.cancel()


async def _watch(receive: Receive, feed: Feed) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    feed.end(ApiError(499, "the client is gone"))


def usage(feed: Feed) -> dict[str, int]:
    prompt, answer = feed.prompt_tokens, feed.answer_tokens
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


async def read_body(request: Request, most: int) -> bytes:
    """ApiError 413 as soon as it is too long, whatever the client says about it, and 415 if it is no JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "the body has to be JSON: Content-Type: application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise ApiError(413, f"a request has at most {most} bytes", code="request_too_large")
    return bytes(body)
