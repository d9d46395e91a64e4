"""A plan cycle by cycle, in plain Python: the specification of `engine`."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from .plan import COUNTS, TIMES, Ints, Leaves, Plan, Stage, Trace
from .reference_memory import NEVER, Request, RequestQueue

LONG_AGO = -(1 << 30)


@dataclass
class _Tile:
    """A call on its way. `loaded`: lines that are in the loader's queues; `vop`: the next to enter the pipeline;
    `in_stages`: cycles at which vOps leave the later stages."""

    number: int
    arrives: int = NEVER  # at the engine
    issued: bool = False
    loaded: int = 0
    vop: int = 0
    in_stages: deque[int] = field(default_factory=deque)


@dataclass
class _Core:
    """One core and its engine. `calls`: dispatched and not committed, in order."""

    number: int
    next_dispatch: int = 0
    last_dispatch: int = LONG_AGO
    hold: int = 0
    calls: list[_Tile] = field(default_factory=list)
    next_commit: int = 0
    flushed: set[int] = field(default_factory=set)
    squash: tuple[int, int] | None = None  # cycle, tile
    prefetches: list[tuple[int, int]] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    on_way: deque[list[Request]] = field(default_factory=deque)
    has_set_off: set[int] = field(default_factory=set)
    stage_free: int = 0
    matrix_free: int = 0
    fence: int = 0


class Reference:
    """All cores and the memory that they share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.cores, self.tiles = plan.side.shape
        self.now = 0
        self.side_line, self.code_line, self.activation_line = plan.addresses()
        self.memory = RequestQueue(plan)
        self.lines: list[list[list[Request | None]]] = [[[None] * int(new) for new in row] for row in plan.lines]
        self.asked_for = np.zeros(plan.side.shape, bool)
        self.shared_activations: dict[int, tuple[list[Request], int]] = {}
        self.activations: list[dict[int, tuple[int, list[Request]]]] = [{} for _ in range(self.cores)]
        self.times = {name: np.full(plan.side.shape, NEVER, np.int64) for name in TIMES}
        self.counts = dict.fromkeys(COUNTS[:-1], 0)
        self.squashed = [0] * len(Stage)
        self.all = [_Core(number) for number in range(self.cores)]

    def run(self) -> Trace:
        while (self.times["product"] == NEVER).any() or any(core.next_commit < self.tiles for core in self.all):
            for core in self.all:
                self._squash(core)
                self._load(core)
                self._complete(core)
                self._dispatch(core)
                self._issue(core)
                self._ask(core)
                self._set_off(core)
                self._prefetch(core)
            self.memory.serve(self.now)
            for core in self.all:
                self._enter_pipeline(core)
            self.now += 1
        return Trace.of(self.times, self.counts, self.squashed)

    # The core: dispatch, issue, completion, commit and squash.

    def _dispatch(self, core: _Core) -> None:
        plan, times, tile = self.plan, self.times, core.next_dispatch
        if tile >= self.tiles or self.now < max(core.hold, core.last_dispatch + plan.dispatch):
            return
        if core.squash is not None and tile - min(plan.queue, plan.registers, plan.window) >= core.squash[1]:
            return
        if tile >= plan.queue and not self._committed_before_now(core, tile - plan.queue):
            return
        for room in (plan.registers, plan.window):
            product = times["product"][core.number, tile - room] if tile >= room else 0
            if product == NEVER or (tile >= room and product >= self.now):
                return
        times["dispatch"][core.number, tile] = core.last_dispatch = self.now
        core.calls.append(_Tile(tile))
        core.next_dispatch += 1
        if self._is_flushed(tile) and tile not in core.flushed and core.squash is None:
            core.squash = (self.now + plan.flush_after, tile)
        self._load_activations(core.number, tile)

    def _committed_before_now(self, core: _Core, tile: int) -> bool:
        done = self.times["done"][core.number, tile]
        product = self.times["product"][core.number, tile - 1] if tile else 0
        return bool(done != NEVER and product != NEVER and max(done, product) < self.now)

    def _issue(self, core: _Core) -> None:
        """Send calls to free ports; those that get to the engine now are issued."""
        for call in core.calls:
            if call.arrives == NEVER and self._port_is_free(core, call.number):
                call.arrives = self.now + self.plan.send
            if call.arrives == self.now and not call.issued:
                call.issued = True
                self.times["issue"][core.number, call.number] = self.now

    def _port_is_free(self, core: _Core, tile: int) -> bool:
        """A port is a loader: the tile that had it before is the one `ports` before this."""
        before = tile - self.plan.ports
        if before < 0:
            return True
        if self.plan.serial:
            product = self.times["product"][core.number, before]
            return bool(product != NEVER and product + self.plan.store <= self.now)
        done = self.times["done"][core.number, before]
        return bool(done != NEVER and done <= self.now)

    def _complete(self, core: _Core) -> None:
        """Tiles that get to the core now, products that begin now, and calls that commit."""
        plan, times, number = self.plan, self.times, core.number
        for call in core.calls:
            tile = call.number
            if times["done"][number, tile] == NEVER and call.vop == self._vops and self._is_back(core, call):
                times["done"][number, tile] = self.now
            done = times["done"][number, tile]
            before = tile == 0 or times["product"][number, tile - 1] != NEVER
            ready = done != NEVER and done <= self.now and core.matrix_free <= self.now
            if times["product"][number, tile] == NEVER and before and ready and self._has_activations(number, tile):
                core.matrix_free = self.now + plan.matrix
                times["product"][number, tile] = core.matrix_free
                core.fence = core.matrix_free + plan.store
        while core.calls and self._commits(core, core.calls[0].number):
            core.calls.pop(0)
            core.next_commit += 1

    def _is_back(self, core: _Core, call: _Tile) -> bool:
        """By calls, `back` cycles after its last vOp has left; by loads, which wait for the fence, as long after."""
        if call.number and self.times["done"][core.number, call.number - 1] == NEVER:
            return False
        out = call.in_stages[-1]
        if self.plan.serial:
            before = call.number == 0 or self.times["product"][core.number, call.number - 1] != NEVER
            return before and self.now >= max(out, core.fence) + self.plan.back
        return self.now >= out + self.plan.back

    def _commits(self, core: _Core, tile: int) -> bool:
        """A branch before it that is not known yet holds it back."""
        if core.squash is not None and tile >= core.squash[1]:
            return False
        product = self.times["product"][core.number, tile]
        return bool(product != NEVER and product <= self.now)

    def _is_flushed(self, tile: int) -> bool:
        return self.plan.flush_every > 0 and tile % self.plan.flush_every == self.plan.flush_every - 1

    def _squash(self, core: _Core) -> None:
        if core.squash is None or core.squash[0] != self.now:
            return
        first = core.squash[1]
        for call in core.calls:
            if call.number >= first:
                self.squashed[self._stage(core, call)] += 1
        core.calls = [call for call in core.calls if call.number < first]
        for name in set(TIMES) - {"arrive"}:
            self.times[name][core.number, first:] = NEVER
        core.flushed.add(first)
        core.squash, core.next_dispatch, core.hold = None, first, self.now + self.plan.flush_time
        self._go_back(core, first - 1)

    def _stage(self, core: _Core, call: _Tile) -> Stage:
        if not call.issued:
            return Stage.queue
        if not call.vop:
            return Stage.loader
        if call.vop < self._vops or call.in_stages[-1] >= self.now:
            return Stage.pipeline
        return Stage.output if self.times["done"][core.number, call.number] == NEVER else Stage.finished

    def _go_back(self, core: _Core, last: int) -> None:
        """The front end and the pipeline hold nothing that is younger than tile `last`."""
        if last < 0:
            core.last_dispatch, core.stage_free = LONG_AGO, 0
            return
        core.last_dispatch = int(self.times["dispatch"][core.number, last])
        end = int(self.times["end"][core.number, last])
        core.stage_free = core.stage_free if end == NEVER else end + self.plan.switch

    # Activations.

    def _load_activations(self, core: int, tile: int) -> None:
        if tile >= self.plan.activations:
            return
        self._ask_for_activations(core, tile, "activations_demanded")
        for other in range(tile + 1, self.plan.activations):
            if self.plan.activation_trigger[other] == tile:
                self._ask_for_activations(core, other, "activations_prefetched")

    def _ask_for_activations(self, core: int, tile: int, by: str) -> None:
        if tile in self.activations[core]:
            return
        plan, count = self.plan, self.plan.activation_lines
        self.counts[by] += count
        requests, fetched = self.shared_activations.get(tile, ([], NEVER))
        if fetched == NEVER or self._fetched() - fetched > plan.llc_lines:
            first = self.activation_line + tile * count
            requests = [self.memory.request(first + line) for line in range(count)]
            self.counts["activations_fetched"] += count
            self.shared_activations[tile] = (requests, self._fetched())
            self.activations[core][tile] = (0, requests)
        else:
            self.activations[core][tile] = (self.now + plan.llc_latency, requests)

    def _fetched(self) -> int:
        """Lines that memory has been asked for."""
        return self.counts["demanded"] + self.counts["prefetched"] + self.counts["activations_fetched"]

    def _has_activations(self, core: int, tile: int) -> bool:
        if tile >= self.plan.activations:
            return True
        earliest, requests = self.activations[core][tile]
        hit = self.plan.hit
        return self.now >= earliest + hit and all(one.is_there(self.now - hit) for one in requests)

    # The loaders.

    def _ask(self, core: _Core) -> None:
        """Of tiles that are issued now, the lines that nobody has asked for."""
        for call in core.calls:
            number, tile = core.number, call.number
            if self.times["issue"][number, tile] == self.now and not self.asked_for[number, tile]:
                walk = int(self.plan.walk[number, tile])
                self.lines[number][tile] = list(self._request_lines(number, tile, walk))
                self.counts["demanded"] += len(self.lines[number][tile])
                self.asked_for[number, tile] = True

    def _request_lines(self, core: int, tile: int, more: int = 0) -> list[Request]:
        """All that are new: side lines, then codes."""
        plan = self.plan
        side = [int(self.side_line[core, tile]) + line for line in range(int(plan.side_new[core, tile]))]
        codes = [int(self.code_line[core, tile]) + line for line in range(int(plan.code_new[core, tile]))]
        return [self.memory.request(address, more) for address in side + codes]

    def _slot(self, core: int, tile: int, load: int) -> int | None:
        """Which of a tile's new lines a load is of: None where an earlier tile has asked for it."""
        plan = self.plan
        side, side_new = int(plan.side[core, tile]), int(plan.side_new[core, tile])
        if load < side:
            return load if load < side_new else None
        shared = self._loads(core, tile) - side - int(plan.code_new[core, tile])
        code = load - side - shared
        return side_new + code if code >= 0 else None

    def _loads(self, core: int, tile: int) -> int:
        return int(self.plan.side[core, tile]) + int(self._of_vops(self.plan.needs, core, tile)[-1])

    def _line_is_there(self, core: int, tile: int, load: int, now: int) -> bool:
        """All side lines come to the queues together with the last of them."""
        plan = self.plan
        if load < plan.side[core, tile]:
            requests: list[Request | None] = self.lines[core][tile][: int(plan.side_new[core, tile])]
            if plan.side[core, tile] > plan.side_new[core, tile]:
                requests = requests + self._last_side(core, tile - 1)
            return all(one is not None and one.is_there(now) for one in requests)
        slot = self._slot(core, tile, load)
        requests = self._last_code(core, tile - 1) if slot is None else [self.lines[core][tile][slot]]
        return all(one is not None and one.is_there(now) for one in requests)

    def _last_side(self, core: int, tile: int) -> list[Request | None]:
        """Side lines that a tile uses, its own and those of tiles before."""
        if tile < 0:
            return []
        plan, own = self.plan, self.lines[core][tile][: int(self.plan.side_new[core, tile])]
        more = self._last_side(core, tile - 1) if plan.side[core, tile] > plan.side_new[core, tile] else []
        return own + more

    def _last_code(self, core: int, tile: int) -> list[Request | None]:
        """The last new line of codes up to a tile, if there is any."""
        while tile >= 0 and not self.plan.code_new[core, tile]:
            tile -= 1
        return self.lines[core][tile][-1:] if tile >= 0 else []

    def _load(self, core: _Core) -> None:
        """A line of each loader gets to its queue, in order, `hit` cycles after it was asked for and there."""
        for call in core.calls:
            number, tile, asked = core.number, call.number, self.now - 1 - self.plan.hit
            if not call.issued:
                continue
            more = call.loaded < self._loads(number, tile) and self.times["issue"][number, tile] <= asked
            if more and self._line_is_there(number, tile, call.loaded, asked):
                call.loaded += 1
            if call.loaded == self._loads(number, tile):
                self._note_arrival(number, call)

    def _note_arrival(self, core: int, call: _Tile) -> None:
        plan, tile = self.plan, call.number
        requests = list(self.lines[core][tile])
        if self._of_vops(plan.needs, core, tile)[-1] > plan.code_new[core, tile]:
            requests += self._last_code(core, tile - 1)
        if plan.side[core, tile] > plan.side_new[core, tile]:
            requests += self._last_side(core, tile - 1)
        self.times["arrive"][core, tile] = max((one.arrive for one in requests if one is not None), default=0)

    # The pipeline.

    def _enter_pipeline(self, core: _Core) -> None:
        """The next vOp, in order, if its input is loaded and the first stage is free."""
        plan, number = self.plan, core.number
        call = next((one for one in core.calls if one.vop < self._vops), None)
        if call is None or not call.issued or core.stage_free > self.now:
            return
        tile = call.number
        need = int(plan.side[number, tile]) + int(self._of_vops(plan.needs, number, tile)[call.vop])
        if call.loaded < need or self.now < self.times["issue"][number, tile] + plan.hit:
            return
        if not call.vop:
            self.times["start"][number, tile] = self.now
        leaves = self.now + int(self._of_vops(plan.occupancy, number, tile)[call.vop])
        call.in_stages.append(leaves + plan.depth)
        call.vop += 1
        core.stage_free = leaves
        if call.vop == self._vops:
            self.times["end"][number, tile] = leaves
            core.stage_free += plan.switch

    @property
    def _vops(self) -> int:
        return int(self.plan.needs.shape[-1])

    def _of_vops(self, array: Ints, core: int, tile: int) -> Ints:
        return np.asarray(array[core if array.shape[0] > 1 else 0, tile if array.shape[1] > 1 else 0])

    # Prefetches.

    def _set_off(self, core: _Core) -> None:
        """Prefetches of tiles under way that have come so far."""
        for call in core.calls:
            if call.number in core.has_set_off or not call.issued or not self._has_come(core.number, call):
                continue
            core.has_set_off.add(call.number)
            for other in range(call.number + 1, self.tiles):
                if self.plan.trigger[core.number, other] == call.number:
                    core.prefetches.append((self.now + int(self.plan.walk[core.number, other]), other))

    def _has_come(self, core: int, call: _Tile) -> bool:
        loads = self._loads(core, call.number)
        if self.plan.leaves == Leaves.loaded:
            waited = self.now >= self.times["issue"][core, call.number] + self.plan.hit
            return bool(waited) and call.loaded == loads
        if self.plan.leaves == Leaves.issued:
            return True
        return all(self._line_is_there(core, call.number, load, self.now) for load in range(loads))

    def _prefetch(self, core: _Core) -> None:
        for due, tile in sorted(core.prefetches):
            if due == self.now and not self.asked_for[core.number, tile]:
                self._line_up(core, tile)
        while core.waiting and self._has_room(core, core.waiting[0]):
            tile = core.waiting.popleft()
            if not self.asked_for[core.number, tile]:
                self._ask_by_prefetch(core, tile)

    def _line_up(self, core: _Core, tile: int) -> None:
        plan, lines = self.plan, int(self.plan.lines[core.number, tile])
        waiting = sum(int(plan.lines[core.number, one]) for one in core.waiting if not self.asked_for[core.number, one])
        if tile in core.waiting:
            return
        too_many = self._on_their_way(core) + waiting + lines > plan.misses + plan.waiting
        if lines > plan.misses or too_many:
            self.counts["dropped"] += lines
        elif lines:
            core.waiting.append(tile)

    def _has_room(self, core: _Core, tile: int) -> bool:
        lines = 0 if self.asked_for[core.number, tile] else int(self.plan.lines[core.number, tile])
        return self._on_their_way(core) + lines <= self.plan.misses

    def _on_their_way(self, core: _Core) -> int:
        """Lines that prefetches have asked for; the L2 cache's entries for them are freed in order."""
        while core.on_way and all(one.is_there(self.now) for one in core.on_way[0]):
            core.on_way.popleft()
        return sum(map(len, core.on_way))

    def _ask_by_prefetch(self, core: _Core, tile: int) -> None:
        self.asked_for[core.number, tile] = True
        requests = self._request_lines(core.number, tile)
        self.lines[core.number][tile] = list(requests)
        core.on_way.append(requests)
        self.counts["prefetched"] += len(requests)
