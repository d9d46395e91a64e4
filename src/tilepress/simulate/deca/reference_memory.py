"""Memory of the reference: requests in the order they come, begun while the last level has an entry for them."""

from collections import deque
from dataclasses import dataclass

from .dram import initial, serve
from .plan import Plan
from .units import UNITS

NEVER = -1


@dataclass
class Request:
    """A line that memory is asked for; `more`: cycles it comes later than memory alone would have it."""

    address: int
    more: int = 0
    arrive: int = NEVER

    def is_there(self, now: int) -> bool:
        return self.arrive != NEVER and self.arrive <= now


class RequestQueue:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.waiting: deque[Request] = deque()
        self.begun: list[Request] = []
        self.dram = initial(plan.dram) if plan.dram else None
        self.free = 0  # units

    def request(self, address: int, more: int = 0) -> Request:
        self.waiting.append(Request(address, more))
        return self.waiting[-1]

    def serve(self, now: int) -> None:
        while self.waiting and self._has_entry(now):
            request = self.waiting.popleft()
            request.arrive = -(-self._units(now, request.address) // UNITS) + self.plan.latency + request.more
            self.begun.append(request)

    def _has_entry(self, now: int) -> bool:
        """Of the last level's misses: in a ring, each takes that of the one `llc_misses` before."""
        before = len(self.begun) - self.plan.llc_misses
        return before < 0 or self.begun[before].arrive <= now

    def _units(self, now: int, address: int) -> int:
        """When DRAM, or the queue that stands for it, has a line."""
        if self.plan.dram is not None and self.dram is not None:
            return serve(self.plan.dram.record(), self.dram, now * UNITS, address)
        self.free = max(self.free, now * UNITS) + self.plan.line_time
        return self.free
