"""Prefetches in the event engine: those that wait in line, and those on their way."""

from typing import Any

from numpy.typing import NDArray

from .compiled import inlined
from .memory import Devices, Memory, request
from .plan import Costs, Ints


class Tile:
    """What a plan says of a tile: lines, the addresses of the first new ones, the range of tiles in which those are
    that it sets off; when it is due at the engine, -1 until that is known; whether it is there, its lines were asked
    for, its prefetch waits, it has set off others. When the last of the side lines that it uses arrived, and the last
    line of codes up to it. `queued` is not of this tile: in the n-th it is the core's n-th prefetch, a tile, or -1 if
    that asked for its lines itself."""

    side: int
    side_new: int
    code_new: int
    side_line: int
    code_line: int
    trigger: int
    walk: int
    first_set_off: int
    end_set_off: int
    due: int
    issued: int
    asked: int
    waits: int
    has_set_off: int
    side_arrive: int
    code_arrive: int
    queued: int


class Core:
    """Cycles at which the first stage and the matrix unit are free, the fence is passed and a flush ends. Tiles before
    `completed` are known to the end, before `next_issue` are due at the engine, before `next_dispatch` are dispatched.
    `squash_tile` is that of a squash to come, or -1; `flushed` the last one. `up_again`: the cycle at which waiting
    prefetches come up again. Of its prefetches the first `arrived` have arrived, those up to `sent` are on their way,
    those up to `end` wait; `on_way` and `waiting` are lines of these."""

    stage_free: int
    matrix_free: int
    fence: int
    hold: int
    completed: int
    next_issue: int
    next_dispatch: int
    squash_tile: int
    squash_at: int
    flushed: int
    up_again: int
    arrived: int
    sent: int
    end: int
    on_way: int
    waiting: int


@inlined
def address(tile: Tile, line: int) -> int:
    """Of a tile's new lines: side lines, then codes."""
    return tile.side_line + line if line < tile.side_new else tile.code_line + line - tile.side_new


@inlined
def line_up(
    costs: Costs,
    tiles: NDArray[Any],
    state: Core,
    arrivals: Ints,
    memory: Memory,
    now: int,
    core: int,
    tile: int,
) -> None:
    """Let a tile's prefetch wait, or drop it where there is no room."""
    _retire(tiles, state, arrivals, now, core)
    one = tiles[core, tile]
    lines = one.side_new + one.code_new
    if one.asked or one.waits or not lines:
        return
    if lines > costs.misses or state.on_way + state.waiting + lines > costs.misses + costs.waiting:
        memory.dropped += lines
    else:
        tiles[core, state.end].queued, one.waits = tile, 1
        state.end += 1
        state.waiting += lines


@inlined
def send_waiting(
    costs: Costs,
    tiles: NDArray[Any],
    state: Core,
    arrivals: Ints,
    memory: Memory,
    devices: Devices,
    now: int,
    core: int,
) -> tuple[int, int]:
    """Ask for the lines of waiting prefetches, in order, for as long as there is room for them on their way. Where some
    still wait, when they come up again and the first of them; else 0 and -1."""
    while state.sent < state.end:
        tile = tiles[core, state.sent].queued
        one = tiles[core, tile]
        lines = one.side_new + one.code_new
        if not one.waits:
            tiles[core, state.sent].queued = -1
        elif state.on_way + lines > costs.misses:
            break
        else:
            for line in range(lines):
                arrivals[core, tile, line] = request(costs, memory, devices, now, 0, address(one, line))
            one.waits, one.asked = 0, 1
            memory.prefetched += lines
            state.waiting -= lines
            state.on_way += lines
        state.sent += 1
    if state.sent == state.end or state.up_again > now:
        return 0, -1
    state.up_again = _retire(tiles, state, arrivals, now, core)
    return state.up_again, tiles[core, state.sent].queued


@inlined
def _retire(tiles: NDArray[Any], state: Core, arrivals: Ints, now: int, core: int) -> int:
    """Take what has arrived off what is on its way; the cycle in which the oldest of the rest arrives."""
    while state.arrived < state.sent:
        tile = tiles[core, state.arrived].queued
        if tile >= 0:
            one = tiles[core, tile]
            lines = one.side_new + one.code_new
            latest = 0
            for line in range(lines):
                latest = max(latest, arrivals[core, tile, line])
            if latest > now:
                return latest
            state.on_way -= lines
        state.arrived += 1
    return now
