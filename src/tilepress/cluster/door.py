"""The door of replicas, as an actor of Ray Serve: reads requests, lets replicas answer them, hands the answers on."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from ray import exceptions, serve
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from ..serve.errors import ApiError, internal
from .exchange import Asked
from .ports import listen_at_node
from .relay import Relayed, ReplicaDiedError, error_response, joined, no_replica, read_whole
from .routing import beginning

REPLICA_HEADER = b"x-tilepress-replica"  # of answers: who answered
PATIENCE = 600.0  # seconds for a replica to take a request: the only one may be loading its model
SHORT_PATIENCE = 5.0  # seconds, where somebody asks how the server is
_STATE = ("/health", "/ready")
_LOG = logging.getLogger(__name__)


class Door:
    """Reads requests, lets replicas answer them, and hands the answers on as they come."""

    def __init__(self, deployment: str, app: str) -> None:
        listen_at_node()
        self._replicas: Any = serve.get_deployment_handle(deployment, app)

    async def __call__(self, request: Request) -> Response:
        try:
            if request.url.path == "/metrics" and request.method == "GET":
                return await self._metrics()
            body = await read_whole(request)
        except ApiError as error:
            return error_response(error)
        patience = SHORT_PATIENCE if request.url.path in _STATE else PATIENCE
        return Relayed(partial(self._ask, beginning(body), Asked.of(request.scope, body), patience))

    async def _ask(self, key: str, asked: Asked, patience: float) -> AsyncGenerator[Message]:
        messages = self._replicas.options(stream=True).answer.remote(key, asked)
        try:
            async with asyncio.timeout(patience):
                name = await anext(messages)
            async for batch in messages:
                for message in batch:
                    if message["type"] == "http.response.start":
                        message["headers"] = [*message["headers"], (REPLICA_HEADER, name.encode())]
                    yield message
        except exceptions.RayTaskError:  # first: one is a TimeoutError, too, if that is what the replica raised
            _LOG.exception("a replica failed")
            raise internal() from None
        except TimeoutError:
            raise no_replica() from None
        except exceptions.RayError as error:
            raise ReplicaDiedError from error
        finally:
            messages.cancel()

    async def _metrics(self) -> Response:
        asked = self._replicas.broadcast("metrics")
        pages = await asked.results_async(timeout_s=SHORT_PATIENCE, return_exceptions=True)
        return Response(
            joined(dict(one for one in pages if not isinstance(one, BaseException))), media_type=CONTENT_TYPE_LATEST
        )
