"""A plan by its events alone: to the cycle what `reference` gives, thousands of times faster.

When a tile is issued, all that follows of it is known at once: when its lines arrive, since memory serves requests in
the order they come, when the engine takes it, since that takes tiles in order, and so when its port is free for
another. Only issues and prefetches of different cores have to be put in order. A heap does that; an event is one
number, by which it is sorted: cycle, core, whether it is a prefetch, tile. When prefetches wait for room, the first of
them comes up again when the oldest lines on their way arrive.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .plan import UNITS, Ints, Leaves, Plan, Trace

CORE_BITS, TILE_BITS = 10, 21
MOST_CORES, MOST_TILES = 1 << CORE_BITS, 1 << TILE_BITS
_PREFETCH = 1 << TILE_BITS
_CORE_SHIFT = TILE_BITS + 1
_TIME_SHIFT = _CORE_SHIFT + CORE_BITS
_ARRIVED, _LOADED = int(Leaves.arrived), int(Leaves.loaded)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    compiled: _Function = njit(cache=True)(function)
    return compiled


def _inlined(function: _Function) -> _Function:
    compiled: _Function = njit(cache=True, forceinline=True)(function)
    return compiled


# What follows are numpy's records, which compiled code gets by reference: each field is an integer. Not named tuples:
# numba's cache on disk cannot be read any more when a class that it names is gone.


class _Tile:
    """What a plan says of a tile; when its lines arrive, -1 until that is known; whether its prefetch waits. `queued`
    is not of this tile: in the n-th it is the core's n-th prefetch, a tile, or -1 if that asked for its lines itself.
    All fit 32 bits, as `longest` does."""

    lines: int
    cycles: int
    trigger: int
    walk: int
    arrive: int
    waits: int
    queued: int


class _Core:
    """Cycles at which engine and matrix unit are free, the fence is passed and a flush ends; the last tile flushed; the
    next that may be prefetched; the cycle at which waiting prefetches come up again. Of its prefetches the first
    `arrived` have arrived, those up to `sent` are on their way, those up to `end` wait; `on_way` and `waiting` are
    lines of these."""

    engine_free: int
    matrix_free: int
    fence: int
    hold: int
    flushed: int
    next_prefetch: int
    up_again: int
    arrived: int
    sent: int
    end: int
    on_way: int
    waiting: int


class _Memory:
    """The unit of time at which it is free; lines by tiles themselves, by prefetches, and of prefetches dropped."""

    free: int
    demanded: int
    prefetched: int
    dropped: int


def _records(
    names: Iterable[str], integer: type, shape: tuple[int, ...], fields: Mapping[str, int | Ints]
) -> NDArray[Any]:
    """With fields called `names`, zero but for `fields`."""
    records = np.zeros(shape, [(name, integer) for name in names])
    for name, value in fields.items():
        records[name] = value
    return records


def run(plan: Plan) -> Trace:
    cores, tiles = plan.lines.shape
    if cores > MOST_CORES or tiles > MOST_TILES:
        raise ValueError(f"at most {MOST_CORES} cores with {MOST_TILES} tiles each, not {cores} with {tiles}")
    if longest(plan) >= 1 << (63 - _TIME_SHIFT):
        raise ValueError("this would take more cycles than can be counted: fewer tiles, or a faster memory")
    given = {name: getattr(plan, name) for name in Plan.__annotations__}
    of_tiles = {name: given.pop(name) for name in ("lines", "cycles", "trigger", "walk")}
    all_tiles = _records(_Tile.__annotations__, np.int32, (cores, tiles), {**of_tiles, "arrive": -1})
    all_cores = _records(_Core.__annotations__, np.int64, (cores,), {"flushed": -1, "up_again": -1})
    memory = _records(_Memory.__annotations__, np.int64, (1,), {})
    costs = _records(given, np.int64, (1,), given)
    issue, start, done, product = times = np.empty((4, cores, tiles), np.int64)
    _run(costs, all_tiles, all_cores, memory, times)
    demanded, prefetched, dropped = (int(memory[0][name]) for name in ("demanded", "prefetched", "dropped"))
    return Trace(issue, all_tiles["arrive"].astype(np.int64), start, done, product, demanded, prefetched, dropped)


def longest(plan: Plan) -> int:
    """Cycles that a plan cannot take more than: every step of every tile of a core after the one before."""
    steps = plan.send + plan.hit + plan.latency + plan.switch + plan.depth + plan.back + plan.store
    largest = int(plan.cycles.max()) + int(plan.lines.max()) + int(plan.walk.max())
    a_tile = largest + steps + plan.matrix + plan.flush_time
    return int(plan.lines.shape[1]) * a_tile + int(plan.lines.sum()) * plan.line_time // UNITS


@_compiled
def _run(
    all_costs: NDArray[Any], tiles: NDArray[Any], cores: NDArray[Any], memories: NDArray[Any], times: Ints
) -> None:
    """What the plan says of all tiles alike [1], _Tile [cores, tiles], _Core [cores], _Memory [1]; `times` [4, cores,
    tiles]: cycles at which a tile is issued, starts and is done, and its product ends."""
    costs, memory = all_costs[0], memories[0]
    issue, start, done, product = times[0], times[1], times[2], times[3]
    heap = np.empty(1024, np.int64)
    size = 0
    for core in range(len(cores)):
        for tile in range(min(costs.ports, tiles.shape[1])):
            heap, size = _push(heap, size, _event(costs.send, core, tile))
    while size:
        event, size = _pop(heap, size)
        now, core = event >> _TIME_SHIFT, (event >> _CORE_SHIFT) & (MOST_CORES - 1)
        tile = event & (MOST_TILES - 1)
        if event & _PREFETCH:
            _line_up(costs, tiles, cores[core], memory, now, core, tile)
            again, first = _send_waiting(costs, tiles, cores[core], memory, now, core)
            if first >= 0:
                heap, size = _push(heap, size, _event(again, core, first) | _PREFETCH)
            continue
        if now < cores[core].hold:
            heap, size = _push(heap, size, _event(cores[core].hold, core, tile))
            continue
        if _demand(costs, tiles[core, tile], cores[core], memory, now):
            heap, size = _push(heap, size, _event(now, core, tile) | _PREFETCH)
        if _flush(costs, cores[core], now, tile):
            heap, size = _push(heap, size, _event(cores[core].hold, core, tile))
            continue
        issue[core, tile] = now
        begun, ready, ended, due, free = _go_through(costs, tiles[core, tile], cores[core], now)
        start[core, tile], done[core, tile], product[core, tile] = begun, ready, ended
        if tile + costs.ports < tiles.shape[1]:
            heap, size = _push(heap, size, _event(free + costs.send, core, tile + costs.ports))
        other = cores[core].next_prefetch
        while other < tiles.shape[1] and tiles[core, other].trigger <= tile:
            if other > tile and tiles[core, other].trigger == tile:
                heap, size = _push(heap, size, _event(due + tiles[core, other].walk, core, other) | _PREFETCH)
            other += 1
        cores[core].next_prefetch = other


@_inlined
def _line_up(costs: Plan, tiles: NDArray[Any], state: _Core, memory: _Memory, now: int, core: int, tile: int) -> None:
    """Let a tile's prefetch wait, or drop it where there is no room."""
    _retire(tiles, state, now, core)
    one = tiles[core, tile]
    if one.arrive >= 0 or one.waits:
        return
    if one.lines > costs.misses or state.on_way + state.waiting + one.lines > costs.misses + costs.queue:
        memory.dropped += one.lines
    elif one.lines:
        tiles[core, state.end].queued, one.waits = tile, 1
        state.end += 1
        state.waiting += one.lines
    else:
        one.arrive = now


@_inlined
def _send_waiting(
    costs: Plan, tiles: NDArray[Any], state: _Core, memory: _Memory, now: int, core: int
) -> tuple[int, int]:
    """Ask for the lines of waiting prefetches, in order, for as long as there is room for them on their way. Where some
    still wait, when they come up again and the first of them; else 0 and -1."""
    while state.sent < state.end:
        one = tiles[core, tiles[core, state.sent].queued]
        if not one.waits:
            tiles[core, state.sent].queued = -1
        elif state.on_way + one.lines > costs.misses:
            break
        else:
            one.arrive = _request(costs, memory, now, one.lines, costs.latency)
            one.waits = 0
            memory.prefetched += one.lines
            state.waiting -= one.lines
            state.on_way += one.lines
        state.sent += 1
    if state.sent == state.end or state.up_again > now:
        return 0, -1
    state.up_again = _retire(tiles, state, now, core)
    return state.up_again, tiles[core, state.sent].queued


@_inlined
def _retire(tiles: NDArray[Any], state: _Core, now: int, core: int) -> int:
    """Take what has arrived off what is on its way; the cycle in which the oldest of the rest arrives."""
    while state.arrived < state.sent:
        tile = tiles[core, state.arrived].queued
        if tile >= 0:
            oldest: _Tile = tiles[core, tile]
            if oldest.arrive > now:
                return oldest.arrive
            state.on_way -= oldest.lines
        state.arrived += 1
    return now


@_inlined
def _demand(costs: Plan, tile: _Tile, state: _Core, memory: _Memory, now: int) -> bool:
    """Ask for a tile's own lines, if nobody has; whether a prefetch of them waited, which it does no more."""
    if tile.arrive >= 0:
        return False
    memory.demanded += tile.lines
    tile.arrive = _request(costs, memory, now, tile.lines, costs.latency + tile.walk)
    if not tile.waits:
        return False
    tile.waits = 0
    state.waiting -= tile.lines
    return True


@_inlined
def _flush(costs: Plan, state: _Core, now: int, tile: int) -> bool:
    """Whether the tile is squashed as it is issued; the core then holds until it issues it again."""
    every = costs.flush_every
    if not every or tile % every != every - 1 or state.flushed == tile:
        return False
    state.flushed, state.hold = tile, now + costs.flush_time
    return True


@_inlined
def _go_through(costs: Plan, tile: _Tile, state: _Core, now: int) -> tuple[int, int, int, int, int]:
    """From issue to product: its start, when it is done, the end of its product, when prefetches that it sets off
    leave, and when its port is free."""
    there = max(now, tile.arrive)
    load = there + costs.hit + tile.lines
    due = load if costs.leaves == _LOADED else there if costs.leaves == _ARRIVED else now
    start = max(load, state.engine_free)
    state.engine_free = start + tile.cycles + costs.switch
    out = start + tile.cycles + costs.depth
    if costs.serial:
        done = max(out, state.fence) + costs.back
        state.matrix_free = done + costs.matrix
        state.fence = free = state.matrix_free + costs.store
    else:
        done = free = out + costs.back
        state.matrix_free = max(free, state.matrix_free) + costs.matrix
    return start, done, state.matrix_free, due, free


@_inlined
def _event(now: int, core: int, tile: int) -> int:
    return (now << _TIME_SHIFT) | (core << _CORE_SHIFT) | tile


@_inlined
def _request(costs: Plan, memory: _Memory, now: int, lines: int, latency: int) -> int:
    """The cycle in which the lines have arrived, at once where there are none; memory is busy with them."""
    if not lines:
        return now
    memory.free = max(memory.free, now * UNITS) + lines * costs.line_time
    return -(-memory.free // UNITS) + latency


@_compiled
def _push(heap: Ints, size: int, event: int) -> tuple[Ints, int]:
    if size == len(heap):
        grown = np.empty(2 * size, np.int64)
        grown[:size] = heap
        heap = grown
    place = size
    while place and heap[(place - 1) >> 1] > event:
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = event
    return heap, size + 1


@_compiled
def _pop(heap: Ints, size: int) -> tuple[int, int]:
    top, size = heap[0], size - 1
    last, place, child = heap[size], 0, 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if last <= heap[child]:
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = last
    return top, size
