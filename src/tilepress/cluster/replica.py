"""A whole server without a socket, as an actor of Ray Serve.

The server is imported where it is made: the command that deploys imports this file, and needs no torch."""

import logging
import platform
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from prometheus_client import generate_latest
from ray import serve
from starlette.types import Message

from .. import __version__
from ..serve.errors import ApiError
from .exchange import Asked, exchange
from .ports import listen_at_node
from .replicas import Settings


class Replica:
    """version: of the tilepress that deploys it."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, version: str, settings: Settings
    ) -> None:
        if version != __version__:
            raise RuntimeError(
                f"{platform.node()} has tilepress {__version__}, and {version} deploys: install the same version on "
                "every machine"
            )
        listen_at_node()
        _log_lines()
        from ..serve.app import make_app
        from ..serve.library import Library
        from ..serve.log import Logged
        from ..serve.meter import Metrics
        from ..serve.service import Service

        library = Library(settings.models, settings.options, Metrics(), settings.memory)
        library.start()
        self._service = Service(library, settings.limits, settings.keys)
        self._app = Logged(make_app(self._service, settings.origins), settings.logs_json)
        self._name = serve.get_replica_context().replica_id.unique_id
        await self._load_default()

    async def answer(self, key: str, asked: Asked) -> AsyncGenerator[str | list[Message]]:
        """Its name at once, then what the app sends. key: for the router alone."""
        yield self._name
        async with aclosing(exchange(self._app, asked)) as batches:
            async for batch in batches:
                yield batch

    async def metrics(self) -> tuple[str, str]:
        """Its name, and the page for Prometheus."""
        return self._name, generate_latest(self._service.library.metrics.registry).decode()

    def check_health(self) -> None:
        """Ray puts another replica in the place of one that raises here."""
        if not self._service.library.works:
            raise RuntimeError("an engine failed; the log says why")

    async def _load_default(self) -> None:
        try:
            async with self._service.library.use(None):
                pass
        except ApiError as error:
            raise RuntimeError(str(error.__cause__ or error)) from error


def _log_lines() -> None:
    """In Ray's log of the replica."""
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logging.getLogger("tilepress").setLevel(logging.INFO)
