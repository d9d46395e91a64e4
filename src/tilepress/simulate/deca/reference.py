"""A plan cycle by cycle, in plain Python: the specification of `engine`."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from .plan import UNITS, Leaves, Plan, Trace

NEVER = -1


@dataclass
class _Core:
    """One core and its engine. `port_free`: cycles from which ports can take the next tiles, earliest first."""

    number: int
    next_tile: int = 0
    hold: int = 0
    flushed: set[int] = field(default_factory=set)
    port_free: deque[int] = field(default_factory=deque)
    under_way: deque[int] = field(default_factory=deque)
    prefetches: list[tuple[int, int]] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    has_set_off: set[int] = field(default_factory=set)
    engine_free: int = 0
    matrix_free: int = 0
    fence: int = 0


class Reference:
    """All cores and the memory that they share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.cores, self.tiles = plan.lines.shape
        self.now = 0
        self.queue: deque[list[int]] = deque()  # core, tile, units left
        shape = plan.lines.shape
        self.issue, self.arrive, self.start, self.done, self.product = (np.full(shape, NEVER) for _ in range(5))
        self.asked = np.zeros(shape, bool)
        self.by_prefetch = np.zeros(shape, bool)
        self.demanded = self.prefetched = self.dropped = 0
        first = deque([plan.send] * plan.ports)
        self.all = [_Core(number, port_free=first.copy()) for number in range(self.cores)]

    def run(self) -> Trace:
        while (self.product == NEVER).any():
            for core in self.all:
                self._issue(core)
                self._set_off(core)
                self._prefetch(core)
            self._serve_memory()
            for core in self.all:
                self._engine(core)
            self.now += 1
        times = (self.issue, self.arrive, self.start, self.done, self.product)
        return Trace(*times, self.demanded, self.prefetched, self.dropped)

    def _is_there(self, core: int, tile: int) -> bool:
        return bool(self.arrive[core, tile] != NEVER and self.arrive[core, tile] <= self.now)

    def _is_loaded(self, core: int, tile: int) -> bool:
        arrived = self.arrive[core, tile]
        way = self.plan.hit + int(self.plan.lines[core, tile])
        return bool(arrived != NEVER and self.now >= max(self.issue[core, tile], arrived) + way)

    def _issue(self, core: _Core) -> None:
        """As many tiles as there are ports free now."""
        while core.next_tile < self.tiles and core.port_free and core.port_free[0] <= self.now >= core.hold:
            tile = core.next_tile
            self._ask(core.number, tile, by_prefetch=False)
            if self._is_flushed(tile) and tile not in core.flushed:
                core.flushed.add(tile)
                core.hold = self.now + self.plan.flush_time
                return
            core.port_free.popleft()
            core.next_tile += 1
            core.under_way.append(tile)
            self.issue[core.number, tile] = self.now

    def _is_flushed(self, tile: int) -> bool:
        return self.plan.flush_every > 0 and tile % self.plan.flush_every == self.plan.flush_every - 1

    def _set_off(self, core: _Core) -> None:
        """Prefetches of tiles under way that have come so far."""
        for tile in core.under_way:
            if tile in core.has_set_off or not self._has_come(core.number, tile):
                continue
            core.has_set_off.add(tile)
            for other in range(tile + 1, self.tiles):
                if self.plan.trigger[core.number, other] == tile:
                    core.prefetches.append((self.now + int(self.plan.walk[core.number, other]), other))

    def _has_come(self, core: int, tile: int) -> bool:
        if self.plan.leaves == Leaves.loaded:
            return self._is_loaded(core, tile)
        return self.plan.leaves == Leaves.issued or self._is_there(core, tile)

    def _prefetch(self, core: _Core) -> None:
        for due, tile in sorted(core.prefetches):
            if due == self.now and not self.asked[core.number, tile]:
                self._line_up(core, tile)
        while core.waiting and self._has_room(core.number, core.waiting[0]):
            self._ask(core.number, core.waiting.popleft(), by_prefetch=True)

    def _line_up(self, core: _Core, tile: int) -> None:
        plan, lines = self.plan, int(self.plan.lines[core.number, tile])
        waiting = sum(int(plan.lines[core.number, one]) for one in core.waiting if not self.asked[core.number, one])
        too_many = self._on_their_way(core.number) + waiting + lines > plan.misses + plan.queue
        if lines > plan.misses or too_many:
            self.dropped += lines
        elif lines:
            core.waiting.append(tile)
        else:
            self._ask(core.number, tile, by_prefetch=True)

    def _has_room(self, core: int, tile: int) -> bool:
        lines = 0 if self.asked[core, tile] else int(self.plan.lines[core, tile])
        return self._on_their_way(core) + lines <= self.plan.misses

    def _on_their_way(self, core: int) -> int:
        """Lines that prefetches have asked for and that have not arrived."""
        missing = (self.arrive[core] == NEVER) | (self.arrive[core] > self.now)
        return int(self.plan.lines[core][self.by_prefetch[core] & missing].sum())

    def _ask(self, core: int, tile: int, by_prefetch: bool) -> None:
        if self.asked[core, tile]:
            return
        lines = int(self.plan.lines[core, tile])
        self.asked[core, tile], self.by_prefetch[core, tile] = True, by_prefetch
        self.prefetched += lines if by_prefetch else 0
        self.demanded += 0 if by_prefetch else lines
        if lines:
            self.queue.append([core, tile, lines * self.plan.line_time])
        else:
            self.arrive[core, tile] = self.now

    def _serve_memory(self) -> None:
        left = UNITS
        while self.queue and left:
            request = self.queue[0]
            served = min(left, request[2])
            request[2] -= served
            left -= served
            if not request[2]:
                core, tile, _ = self.queue.popleft()
                walk = 0 if self.by_prefetch[core, tile] else int(self.plan.walk[core, tile])
                self.arrive[core, tile] = self.now + 1 + self.plan.latency + walk

    def _engine(self, core: _Core) -> None:
        """Take the next tile if it is loaded and the engine free: what follows is then known."""
        plan, number = self.plan, core.number
        while core.under_way and core.engine_free <= self.now and self._is_loaded(number, core.under_way[0]):
            tile = core.under_way.popleft()
            cycles = int(plan.cycles[number, tile])
            self.start[number, tile] = self.now
            core.engine_free = self.now + cycles + plan.switch
            self._finish(core, tile, self.now + cycles + plan.depth)

    def _finish(self, core: _Core, tile: int, out: int) -> None:
        plan = self.plan
        if plan.serial:
            done = max(out, core.fence) + plan.back
            core.matrix_free = done + plan.matrix
            free = core.fence = core.matrix_free + plan.store
        else:
            free = done = out + plan.back
            core.matrix_free = max(done, core.matrix_free) + plan.matrix
        self.done[core.number, tile] = done
        self.product[core.number, tile] = core.matrix_free
        core.port_free.append(free + plan.send)
