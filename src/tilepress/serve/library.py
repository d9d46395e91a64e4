"""Several models, in memory when they are asked for."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from ..engine import Engine
from ..models.chat import ChatRenderer
from .driver import Driver
from .errors import ApiError
from .forms import Forms
from .meter import Meter, Metrics
from .opening import Opened, expected_bytes, open_model
from .options import EngineOptions

_LOG = logging.getLogger(__name__)
Open = Callable[[str, EngineOptions], Opened]


@dataclass
class Served:
    """A model in memory, with what serves it. label: its name in metrics."""

    label: str
    opened: Opened
    driver: Driver
    forms: Forms
    renderer: ChatRenderer

    @property
    def engine(self) -> Engine:
        return self.opened.engine


@dataclass
class _Entry:
    """A model, in memory or not. users: requests. used: a number that grows. nbytes: in memory, or to be expected."""

    source: str
    label: str
    nbytes: int
    served: Served | None = None
    loading: "asyncio.Task[Served] | None" = None
    users: int = 0
    used: int = 0


@dataclass
class Library:
    """Loads models when they are asked for, and drops the one unused longest where memory is too little.

    Args:
        models: what to load, by the names that requests have; the first is the default.
        memory: bytes of all models together, weights and pages; None is any.
        open: loads one.
    """

    models: Mapping[str, str]
    options: EngineOptions
    metrics: Metrics
    memory: int | None = None
    open: Open = open_model
    _entries: dict[str, _Entry] = field(init=False)

    def __post_init__(self) -> None:
        self._entries = {}
        for name, source in self.models.items():
            expected = expected_bytes(source, self.options)
            self._entries.setdefault(source, _Entry(source, name, expected))
        self._uses = count(1)
        self._one_at_a_time = asyncio.Lock()
        self._renderer = ChatRenderer()
        self.metrics.watch(lambda: self.engines)

    @property
    def default(self) -> str:
        return next(iter(self.models))

    @property
    def in_memory(self) -> list[Served]:
        return [entry.served for entry in self._entries.values() if entry.served is not None]

    @property
    def engines(self) -> dict[str, Engine]:
        return {served.label: served.engine for served in self.in_memory}

    def bytes_in_memory(self, name: str) -> int | None:
        """Of weights and all pages; None of a model that is not loaded. ApiError 404 if there is none of this name."""
        entry = self._entry(name)
        return None if entry.served is None else entry.nbytes

    @property
    def default_is_loaded(self) -> bool:
        return self._entry(None).served is not None

    @property
    def works(self) -> bool:
        """Whether no engine has failed."""
        return not any(served.driver.failed for served in self.in_memory)

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Served]:
        """A model that stays in memory meanwhile. ApiError if there is none of this name, or no room."""
        entry = self._entry(name)
        entry.users += 1
        try:
            served = await self._load(entry)
            entry.used = next(self._uses)
            yield served
        finally:
            entry.users -= 1

    def end_all(self, error: ApiError) -> None:
        """All requests end with an error."""
        for served in self.in_memory:
            served.driver.end_all(error)

    def start(self) -> None:
        """Before any model is loaded: what is forked now is small."""
        self._renderer.start()

    async def close(self) -> None:
        self._renderer.close()
        await _close(list(self._entries.values()))

    def _entry(self, name: str | None) -> _Entry:
        source = self.models.get(self.default if name is None else name)
        if source is None:
            raise ApiError(
                404, f"there is no model {name!r}: /v1/models lists them", param="model", code="model_not_found"
            )
        return self._entries[source]

    async def _load(self, entry: _Entry) -> Served:
        """Loaded once, however many ask, and to the end, if those who asked go away."""
        if entry.served is not None:
            return entry.served
        if entry.loading is None:
            entry.loading = asyncio.create_task(self._open(entry))
            entry.loading.add_done_callback(partial(_loaded, entry))
        return await asyncio.shield(entry.loading)

    async def _open(self, entry: _Entry) -> Served:
        async with self._one_at_a_time:
            await self._make_room(entry)
            try:
                opened = await asyncio.to_thread(self.open, entry.source, self.options)
            except Exception as error:
                _LOG.error("model %s cannot be loaded: %s", entry.label, error)
                raise ApiError(503, f"model {entry.label} cannot be loaded; the log says why") from error
            entry.nbytes = opened.nbytes
            await self._make_room(entry)
            entry.served = self._serve(entry, opened)
            return entry.served

    def _serve(self, entry: _Entry, opened: Opened) -> Served:
        driver = Driver(opened.engine, Meter(self.metrics, entry.label))
        return Served(entry.label, opened, driver, Forms(opened.engine, opened.tokenizer), self._renderer)

    async def _make_room(self, entry: _Entry) -> None:
        """ApiError 503 if it does not fit beside models that are in use."""
        if self.memory is None:
            return
        if entry.nbytes > self.memory:
            raise ApiError(503, f"model {entry.label} needs {entry.nbytes} bytes, and there are {self.memory}")
        others = [one for one in self._entries.values() if one is not entry and one.served is not None]
        idle = sorted((one for one in others if not one.users), key=lambda one: one.used)
        taken = entry.nbytes + sum(one.nbytes for one in others)
        dropped = []
        while taken > self.memory and idle:
            dropped.append(idle.pop(0))
            taken -= dropped[-1].nbytes
        if taken > self.memory:
            raise ApiError(503, f"model {entry.label} has no room beside those in use: try again later", retry_after=5)
        await _close(dropped)


async def _close(entries: Sequence[_Entry]) -> None:
    """All of them are gone at once: a request that comes meanwhile loads its model anew."""
    drivers = [entry.served.driver for entry in entries if entry.served is not None]
    for entry in entries:
        entry.served = None
    for driver in drivers:
        await asyncio.to_thread(driver.close)
    del drivers
    gc.collect()  # models have cycles


def _loaded(entry: _Entry, task: "asyncio.Task[Served]") -> None:
    entry.loading = None
    if not task.cancelled():
        task.exception()  # those who wait for it get it; if nobody does, it is in the log
