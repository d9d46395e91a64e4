"""How many requests there may be at a time."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import ApiError, stopping
from .limits import Limits


class Admission:
    """Counts requests in progress. `closed`: no new ones are let in."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.closed, self.inside = limits, False, 0
        self._of_key: Counter[str] = Counter()
        self._left = asyncio.Event()

    @contextmanager
    def enter(self, key: str) -> Iterator[None]:
        """ApiError 503 or 429 where there is no place."""
        if self.closed:
            raise stopping()
        most, most_of_key = self.limits.requests, self.limits.requests_per_key
        if self.inside >= most:
            raise _too_many(f"{most} requests are in progress already")
        if most_of_key is not None and self._of_key[key] >= most_of_key:
            raise _too_many(f"{most_of_key} requests of this key are in progress already")
        self.inside += 1
        self._of_key[key] += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._of_key[key] -= 1
            self._left.set()

    async def emptied(self, seconds: float) -> bool:
        """Waits until no request is in progress; whether that came in time."""
        try:
            async with asyncio.timeout(seconds):
                while self.inside:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True


def _too_many(message: str) -> ApiError:
    return ApiError(
        429, f"{message}: try again later", code="rate_limit_exceeded", kind="rate_limit_error", retry_after=1
    )
