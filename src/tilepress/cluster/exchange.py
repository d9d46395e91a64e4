"""A request, carried to an app in another process, and the app's answer as it comes."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Scope

_CARRIED = ("method", "path", "raw_path", "query_string", "headers", "http_version", "client")  # JSON-like, and bytes


@dataclass(frozen=True)
class Asked:
    """A whole request of HTTP. parts: of its ASGI scope."""

    parts: dict[str, Any]
    body: bytes

    @classmethod
    def of(cls, scope: Scope, body: bytes) -> "Asked":
        return cls({name: scope[name] for name in _CARRIED if name in scope}, body)

    @property
    def scope(self) -> Scope:
        return {"type": "http", "asgi": {"version": "3.0"}, "scheme": "http", "root_path": "", **self.parts}


async def exchange(app: ASGIApp, asked: Asked) -> AsyncGenerator[list[Message]]:
    """What the app sends; together what came since the last time, as each thing that is yielded costs Ray a while. Then
    what it raises. To the app, the client is gone when nobody iterates any more."""
    messages: asyncio.Queue[Message | None] = asyncio.Queue()
    gone = asyncio.Event()
    bodies = [{"type": "http.request", "body": asked.body, "more_body": False}]

    async def receive() -> Message:
        if bodies:
            return bodies.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    answering = asyncio.ensure_future(app(asked.scope, receive, messages.put))
    answering.add_done_callback(lambda _: messages.put_nowait(None))
    try:
        while (message := await messages.get()) is not None:
            batch = [message]
            while not messages.empty() and (message := messages.get_nowait()) is not None:
                batch.append(message)
            yield batch
            if message is None:
                break
        answering.result()
    finally:
        gone.set()
