"""One line for each request, without what was asked or answered."""

import json
import logging
import time
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)


class Logged:
    """An app whose requests are logged, and exceptions that are bugs.

    Args:
        as_json: whether lines are JSON.
    """

    def __init__(self, app: ASGIApp, as_json: bool = False) -> None:
        self._app, self._as_json = app, as_json

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        statuses: list[int] = []
        began = time.perf_counter()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except TimeoutError:  # the client does not read
            pass
        except Exception:
            _LOG.exception("a request failed")
        finally:
            _LOG.info("%s", self._line(scope, statuses, time.perf_counter() - began))

    def _line(self, scope: Scope, statuses: list[int], seconds: float) -> str:
        prompt, answer = scope.get("state", {}).get("tokens", (0, 0))
        values: dict[str, Any] = {
            "method": scope["method"],
            "path": quote(scope["path"])[:200],
            "status": statuses[0] if statuses else 499,
            "prompt_tokens": prompt,
            "answer_tokens": answer,
            "seconds": round(seconds, 3),
        }
        if self._as_json:
            return json.dumps(values)
        return "{method} {path} {status} {prompt_tokens}+{answer_tokens} tokens {seconds} s".format(**values)
