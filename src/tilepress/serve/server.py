"""A server from its start to its end."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread

import uvicorn

from .app import make_app
from .errors import ApiError
from .log import Logged
from .service import Service

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STRAGGLERS = 5  # seconds for connections that are open when everything is finished


@dataclass(frozen=True)
class Address:
    """drain: seconds that requests have when the server is told to stop. origins: see `make_app`."""

    host: str = "127.0.0.1"
    port: int = 8000
    drain: float = 30.0
    origins: Sequence[str] = ()
    logs_json: bool = False


class Server(uvicorn.Server):
    """Serves until a signal comes, or `stop`; then until requests are finished or `drain` seconds are over. A second
    signal ends it at once."""

    def __init__(self, service: Service, address: Address) -> None:
        app = Logged(make_app(service, address.origins), address.logs_json)
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=_STRAGGLERS,
            )
        )
        self.service, self._drain = service, address.drain
        self._stopping: asyncio.Task[None] | None = None
        self.failure: ApiError | None = None

    def stop(self) -> None:
        """From the event loop."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._drained())
        else:
            self.should_exit = self.force_exit = True

    async def run_until_stopped(self, listener: socket.socket) -> None:
        """ApiError if the default model cannot be loaded."""
        self.service.library.start()
        loading = asyncio.create_task(self._load_default())
        await self.serve([listener])
        await loading
        await self.service.library.close()
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """In place of uvicorn's own, which closes the door at once."""
        if current_thread() is not main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self.stop)
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    async def _load_default(self) -> None:
        try:
            async with self.service.library.use(None):
                pass
        except ApiError as error:
            self.failure = error
            self.should_exit = True

    async def _drained(self) -> None:
        await self.service.drain(self._drain)
        self.should_exit = True


def listen(address: Address) -> socket.socket:
    """OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=2048)


def serve(service: Service, address: Address) -> None:
    """Until it is told to stop. RuntimeError if the default model cannot be loaded."""
    with listen(address) as listener:
        print(f"serving on http://{_shown(listener)}", file=sys.stderr, flush=True)
        try:
            asyncio.run(Server(service, address).run_until_stopped(listener))
        except ApiError as error:
            raise RuntimeError(str(error.__cause__ or error)) from error


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
