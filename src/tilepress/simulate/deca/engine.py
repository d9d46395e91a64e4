"""A plan by its events alone: to the cycle what `reference` gives, thousands of times faster.

When a tile is issued, all that follows of it is known at once: when its lines arrive, since memory serves requests in
the order they come, when the engine takes it, since that takes tiles in order, and so when its port is free for
another. Only issues and prefetches of different cores have to be put in order. A heap does that; an event is one
number, by which it is sorted: cycle, core, whether it is a prefetch, tile. When prefetches wait for room, the first of
them comes up again when the oldest lines on their way arrive.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from .plan import UNITS, Leaves, Plan, Trace

CORE_BITS, TILE_BITS = 10, 21
MOST_CORES, MOST_TILES = 1 << CORE_BITS, 1 << TILE_BITS
_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(cache=True)
_PREFETCH = 1 << TILE_BITS
_CORE_SHIFT = TILE_BITS + 1
_TIME_SHIFT = _CORE_SHIFT + CORE_BITS
_ARRIVED, _LOADED = int(Leaves.arrived), int(Leaves.loaded)


def run(plan: Plan) -> Trace:
    cores, tiles = plan.lines.shape
    if cores > MOST_CORES or tiles > MOST_TILES:
        raise ValueError(f"at most {MOST_CORES} cores with {MOST_TILES} tiles each, not {cores} with {tiles}")
    if longest(plan) >= 1 << (63 - _TIME_SHIFT):
        raise ValueError("this would take more cycles than can be counted: fewer tiles, or a faster memory")
    issue, arrive, start, done, product = (np.full(plan.lines.shape, -1, np.int64) for _ in range(5))
    times = (issue, arrive, start, done, product)
    arrays = (np.ascontiguousarray(one) for one in (plan.lines, plan.cycles, plan.trigger, plan.walk))
    numbers = (plan.line_time, plan.ports, plan.send, plan.hit, plan.latency, int(plan.leaves))
    prefetch = (plan.misses, plan.queue)
    more = (plan.switch, plan.depth, plan.back, plan.matrix, plan.serial, plan.store, plan.flush_every, plan.flush_time)
    demanded, prefetched, dropped = map(int, _run(*arrays, *times, *numbers, *prefetch, *more))
    return Trace(*times, demanded, prefetched, dropped)


def longest(plan: Plan) -> int:
    """Cycles that a plan cannot take more than: every step of every tile of a core after the one before."""
    steps = plan.send + plan.hit + plan.latency + plan.switch + plan.depth + plan.back + plan.store
    largest = int(plan.cycles.max()) + int(plan.lines.max()) + int(plan.walk.max())
    a_tile = largest + steps + plan.matrix + plan.flush_time
    return int(plan.lines.shape[1]) * a_tile + int(plan.lines.sum()) * plan.line_time // UNITS


@_compiled
def _run(  # type: ignore[no-untyped-def]
    lines, cycles, trigger, walk, issue, arrive, start, done, product,
    line_time, ports, send, hit, latency, leaves, misses, queue,
    switch, depth, back, matrix, serial, store, flush_every, flush_time,
):  # fmt: skip
    cores, tiles = lines.shape
    engine_free, matrix_free, fence = np.zeros(cores, np.int64), np.zeros(cores, np.int64), np.zeros(cores, np.int64)
    hold, flushed = np.zeros(cores, np.int64), np.full(cores, -1, np.int64)
    next_prefetch, up_again = np.zeros(cores, np.int64), np.full(cores, -1, np.int64)
    # Tiles whose prefetches wait, then are on their way, then have arrived: where each part begins, and their lines.
    lined_up = np.empty((cores, tiles), np.int64)
    first_way, first_wait, last_wait = np.zeros(cores, np.int64), np.zeros(cores, np.int64), np.zeros(cores, np.int64)
    on_way, waiting, waits = np.zeros(cores, np.int64), np.zeros(cores, np.int64), np.zeros((cores, tiles), np.bool_)
    memory_free = demanded = prefetched = dropped = 0
    heap = np.empty(1024, np.int64)
    size = 0
    for core in range(cores):
        for tile in range(min(ports, tiles)):
            heap, size = _push(heap, size, _event(send, core, tile))
    while size:
        event, size = _pop(heap, size)
        now, core = event >> _TIME_SHIFT, (event >> _CORE_SHIFT) & (MOST_CORES - 1)
        tile, is_prefetch = event & (MOST_TILES - 1), event & _PREFETCH
        count = lines[core, tile]
        if is_prefetch:
            _retire(first_way, first_wait, on_way, lined_up, lines, arrive, core, now)
            if arrive[core, tile] < 0 and not waits[core, tile]:
                if count > misses or on_way[core] + waiting[core] + count > misses + queue:
                    dropped += count
                elif count:
                    lined_up[core, last_wait[core]], waits[core, tile] = tile, True
                    last_wait[core] += 1
                    waiting[core] += count
                else:
                    arrive[core, tile] = now
            while first_wait[core] < last_wait[core]:
                head = lined_up[core, first_wait[core]]
                count = lines[core, head]
                if not waits[core, head]:
                    lined_up[core, first_wait[core]] = -1
                elif on_way[core] + count > misses:
                    break
                else:
                    memory_free, arrive[core, head] = _request(memory_free, now, count, line_time, latency)
                    waits[core, head] = False
                    prefetched += count
                    waiting[core] -= count
                    on_way[core] += count
                first_wait[core] += 1
            if first_wait[core] < last_wait[core] and up_again[core] <= now:
                oldest = _retire(first_way, first_wait, on_way, lined_up, lines, arrive, core, now)
                up_again[core] = oldest
                heap, size = _push(heap, size, _event(oldest, core, lined_up[core, first_wait[core]]) | _PREFETCH)
            continue
        if now < hold[core]:
            heap, size = _push(heap, size, _event(hold[core], core, tile))
            continue
        if arrive[core, tile] < 0:
            demanded += count
            late = latency + walk[core, tile]
            memory_free, arrive[core, tile] = _request(memory_free, now, count, line_time, late)
            if waits[core, tile]:
                waits[core, tile] = False
                waiting[core] -= count
                heap, size = _push(heap, size, _event(now, core, tile) | _PREFETCH)
        if flush_every and tile % flush_every == flush_every - 1 and flushed[core] != tile:
            flushed[core], hold[core] = tile, now + flush_time
            heap, size = _push(heap, size, _event(hold[core], core, tile))
            continue
        issue[core, tile] = now
        there = max(now, arrive[core, tile])
        load = there + hit + count
        due = load if leaves == _LOADED else there if leaves == _ARRIVED else now
        start[core, tile] = max(load, engine_free[core])
        engine_free[core] = start[core, tile] + cycles[core, tile] + switch
        out = start[core, tile] + cycles[core, tile] + depth
        if serial:
            done[core, tile] = max(out, fence[core]) + back
            matrix_free[core] = done[core, tile] + matrix
            fence[core] = free = matrix_free[core] + store
        else:
            done[core, tile] = free = out + back
            matrix_free[core] = max(free, matrix_free[core]) + matrix
        product[core, tile] = matrix_free[core]
        if tile + ports < tiles:
            heap, size = _push(heap, size, _event(free + send, core, tile + ports))
        other = next_prefetch[core]
        while other < tiles and trigger[core, other] <= tile:
            if other > tile and trigger[core, other] == tile:
                heap, size = _push(heap, size, _event(due + walk[core, other], core, other) | _PREFETCH)
            other += 1
        next_prefetch[core] = other
    return demanded, prefetched, dropped


@_compiled
def _retire(
    first_way: Any, first_wait: Any, on_way: Any, lined_up: Any, lines: Any, arrive: Any, core: Any, now: Any
) -> Any:
    """Take what has arrived off what is on its way; the cycle in which the oldest of the rest arrives."""
    while first_way[core] < first_wait[core]:
        oldest = lined_up[core, first_way[core]]
        if oldest >= 0:
            if arrive[core, oldest] > now:
                return arrive[core, oldest]
            on_way[core] -= lines[core, oldest]
        first_way[core] += 1
    return now


@_compiled
def _event(now: Any, core: Any, tile: Any) -> Any:
    return (now << _TIME_SHIFT) | (core << _CORE_SHIFT) | tile


@_compiled
def _request(memory_free: Any, now: Any, lines: Any, line_time: Any, latency: Any) -> Any:
    """When memory is free again, in units, and the cycle in which the lines have arrived."""
    if not lines:
        return memory_free, now
    end = max(memory_free, now * UNITS) + lines * line_time
    return end, -(-end // UNITS) + latency


@_compiled
def _push(heap: Any, size: Any, event: Any) -> Any:
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
def _pop(heap: Any, size: Any) -> Any:
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
