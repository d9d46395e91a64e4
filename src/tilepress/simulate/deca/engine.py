"""A plan by its events alone: to the cycle what `reference` gives, thousands of times faster.

When a loader asks for lines, all that follows is known at once: when they arrive, since memory serves requests in the
order they come, when each vector operation starts, since the pipeline takes them in order, and so when later calls are
dispatched and issued. Only what goes to memory has to be put in order among cores, and what a squash undoes. A heap
does that; an event is one number, by which it is sorted: cycle, core, kind, tile. An event of a tile that was squashed
since is found to be stale by its cycle, which is not the one that the tile waits for any more.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled import compiled, inlined, pop, push, records
from .memory import COUNTED, Devices, Memory, devices, memory, request
from .plan import TIMES, Costs, Ints, Leaves, Plan, Stage, Trace
from .prefetch import Core, Tile, address, line_up, send_waiting
from .units import UNITS

CORE_BITS, KIND_BITS, TILE_BITS = 10, 2, 21
MOST_CORES, MOST_TILES = 1 << CORE_BITS, 1 << TILE_BITS
_KIND_SHIFT = TILE_BITS
_CORE_SHIFT = _KIND_SHIFT + KIND_BITS
_TIME_SHIFT = _CORE_SHIFT + CORE_BITS
_SQUASH, _ACTIVATIONS, _ASK, _PREFETCH = range(4)  # kinds of events, in the order in which a cycle has them
_ARRIVED, _LOADED = int(Leaves.arrived), int(Leaves.loaded)
_QUEUE, _LOADER, _PIPELINE, _OUTPUT, _FINISHED = (int(stage) for stage in Stage)


_OF_TILES = ("side", "side_new", "code_new", "trigger", "walk")
_OF_VOPS = ("occupancy", "needs")
_Vops = tuple[Ints, Ints]
_Activations = tuple[Ints, Ints, Ints, Ints, Ints, Ints]


def run(plan: Plan) -> Trace:
    cores, tiles = plan.side.shape
    if cores > MOST_CORES or tiles > MOST_TILES:
        raise ValueError(f"at most {MOST_CORES} cores with {MOST_TILES} tiles each, not {cores} with {tiles}")
    if longest(plan) >= 1 << (63 - _TIME_SHIFT):
        raise ValueError("this would take more cycles than can be counted: fewer tiles, or a faster memory")
    given = {name: getattr(plan, name) for name in Plan.__annotations__}
    occupancy, needs = (np.ascontiguousarray(given.pop(name), np.int16) for name in _OF_VOPS)
    activations = _activations(given.pop("activation_trigger"), plan.activations, cores)
    of_tiles = {name: given.pop(name) for name in _OF_TILES}
    first, end = _ranges(plan.trigger)
    side_line, code_line, given["activation_line"] = plan.addresses()
    of_tiles |= {"side_line": side_line, "code_line": code_line, "first_set_off": first, "end_set_off": end, "due": -1}
    given["has_dram"] = given.pop("dram") is not None
    all_tiles = records(Tile.__annotations__, np.int32, (cores, tiles), of_tiles)
    all_cores = records(Core.__annotations__, np.int64, (cores,), {"squash_tile": -1, "flushed": -1, "up_again": -1})
    costs = records(given, np.int64, (1,), given)
    arrivals = np.full((cores, tiles, max(int(plan.lines.max()), 1)), -1, np.int32)
    of_memory, squashed = memory(), np.zeros(len(Stage), np.int64)
    times = np.full((len(TIMES), cores, tiles), -1, np.int64)
    _run(
        costs,
        all_tiles,
        (occupancy, needs),
        all_cores,
        of_memory,
        arrivals,
        devices(plan),
        activations,
        times,
        squashed,
    )
    counts = {name: int(of_memory[0][name]) for name in COUNTED}
    return Trace.of(dict(zip(TIMES, times, strict=True)), counts, squashed)


def _ranges(trigger: Ints) -> tuple[Ints, Ints]:
    """[rows, tiles] each: the first tile that each sets off, and the one after the last."""
    rows = trigger[:1] if trigger.strides[0] == 0 else trigger
    order = np.maximum.accumulate(rows, axis=1)
    tiles = np.arange(order.shape[1])
    first = np.stack([np.searchsorted(row, tiles, side="left") for row in order])
    end = np.stack([np.searchsorted(row, tiles, side="right") for row in order])
    return np.broadcast_to(first, trigger.shape), np.broadcast_to(end, trigger.shape)


def _activations(trigger: Ints, count: int, cores: int) -> _Activations:
    """Of the tiles that have any: triggers [tiles] and the ranges of tiles that each sets off; when those of each core
    are there [cores, tiles], -1 until they are asked for; when the last core to have them from memory has, and the
    lines that memory was asked for until then."""
    some = np.ascontiguousarray(trigger[:count], np.int64)
    first, end = (np.ascontiguousarray(one[0]) for one in _ranges(some[None]))
    return some, first, end, np.full((cores, count), -1, np.int64), np.full(count, -1), np.zeros(count, np.int64)


def longest(plan: Plan) -> int:
    """Cycles that a plan cannot take more than: every step of every tile of a core after the one before, and every line
    of DRAM from another row of the same bank."""
    core = plan.dispatch + plan.send + plan.switch + plan.depth + plan.back + plan.store
    line_time, latency = plan.line_time, plan.latency
    if plan.dram:
        row = plan.dram.rc + plan.dram.bursts * plan.dram.ccd_l
        line_time += row + row * (plan.dram.rfc + plan.dram.rp) // plan.dram.refi
        latency += (plan.dram.idle + plan.dram.rfc + plan.dram.rp) // UNITS + 1
    largest = int(plan.cycles.max()) + int(plan.walk.max()) + int((plan.side + plan.needs[..., -1]).max())
    a_tile = core + largest + 2 * (latency + plan.hit) + plan.llc_latency + plan.matrix
    tiles = int(plan.side.shape[1]) * (a_tile + plan.flush_time + plan.flush_after)
    lines = int(plan.lines.sum()) + plan.activations * plan.activation_lines * plan.side.shape[0]
    return int(2 * tiles + lines * line_time // UNITS + lines // plan.llc_misses * latency)


@compiled
def _run(
    all_costs: NDArray[Any],
    tiles: NDArray[Any],
    vops: _Vops,
    cores: NDArray[Any],
    memories: NDArray[Any],
    arrivals: Ints,
    of_devices: Devices,
    activations: _Activations,
    times: Ints,
    squashed: Ints,
) -> None:
    """What the plan says of all tiles alike [1], Tile [cores, tiles], Core [cores], Memory [1]; `arrivals` [cores,
    tiles, lines]: of each new line, -1 until it is asked for; `times` [len(TIMES), cores, tiles]."""
    costs, of_memory = all_costs[0], memories[0]
    heap, size = np.empty(1024, np.int64), 0
    for core in range(len(cores)):
        heap, size = _go_on(costs, tiles, cores[core], times, core, heap, size)
    while size:
        event, size = pop(heap, size)
        now, core = event >> _TIME_SHIFT, (event >> _CORE_SHIFT) & (MOST_CORES - 1)
        kind, tile = (event >> _KIND_SHIFT) & 3, event & (MOST_TILES - 1)
        state = cores[core]
        if kind == _PREFETCH:
            line_up(costs, tiles, state, arrivals, of_memory, now, core, tile)
            again, first = send_waiting(costs, tiles, state, arrivals, of_memory, of_devices, now, core)
            if first >= 0:
                heap, size = push(heap, size, _event(again, core, _PREFETCH, first))
        elif kind == _SQUASH:
            if state.squash_tile == tile and state.squash_at == now:
                _squash(costs, tiles, state, times, squashed, now, core)
                heap, size = _go_on(costs, tiles, state, times, core, heap, size)
        elif kind == _ACTIVATIONS:
            if times[0, core, tile] == now:
                _load_activations(costs, of_memory, of_devices, activations, now, core, tile)
        else:
            one = tiles[core, tile]
            if one.due == now and not one.issued:
                one.issued = 1
                if _ask(costs, one, state, arrivals[core, tile], of_memory, of_devices, now):
                    heap, size = push(heap, size, _event(now, core, _PREFETCH, tile))
                loaded, there = _go_through(costs, tiles, vops, state, arrivals, times, core, tile)
                _finish(costs, state, activations[3], times, core, tile)
                leaves = loaded if costs.leaves == _LOADED else there if costs.leaves == _ARRIVED else now
                heap, size = _set_off(tiles, state, leaves, core, tile, heap, size)
                heap, size = _go_on(costs, tiles, state, times, core, heap, size)


@inlined
def _event(now: int, core: int, kind: int, tile: int) -> int:
    return (now << _TIME_SHIFT) | (core << _CORE_SHIFT) | (kind << _KIND_SHIFT) | tile


@compiled
def _go_on(
    costs: Costs, tiles: NDArray[Any], state: Core, times: Ints, core: int, heap: Ints, size: int
) -> tuple[Ints, int]:
    """Dispatch and issue all calls of which it is known when, by what has been completed."""
    ahead = min(costs.queue, costs.registers, costs.window)
    dispatch, done, product = times[0, core], times[5, core], times[6, core]
    while state.next_dispatch < len(dispatch):
        tile = state.next_dispatch
        if tile >= ahead and (state.completed <= tile - ahead or 0 <= state.squash_tile <= tile - ahead):
            break
        when = max(state.hold, 0)
        if tile:
            when = max(when, dispatch[tile - 1] + costs.dispatch)
        if tile >= costs.queue:
            when = max(when, _commit(done, product, tile - costs.queue) + 1)
        for room in (costs.registers, costs.window):
            if tile >= room:
                when = max(when, product[tile - room] + 1)
        dispatch[tile] = when
        state.next_dispatch += 1
        every = costs.flush_every
        if every and tile % every == every - 1 and tile > state.flushed and state.squash_tile < 0:
            state.squash_tile, state.squash_at = tile, when + costs.flush_after
            heap, size = push(heap, size, _event(state.squash_at, core, _SQUASH, tile))
        if tile < costs.activations:
            heap, size = push(heap, size, _event(when, core, _ACTIVATIONS, tile))
    while state.next_issue < state.next_dispatch:
        tile = state.next_issue
        before = tile - costs.ports
        if before >= state.completed:
            break
        free = 0
        if before >= 0:
            free = product[before] + costs.store if costs.serial else done[before]
        tiles[core, tile].due = max(dispatch[tile], free) + costs.send
        heap, size = push(heap, size, _event(tiles[core, tile].due, core, _ASK, tile))
        state.next_issue += 1
    return heap, size


@inlined
def _commit(done: Ints, product: Ints, tile: int) -> int:
    return int(max(done[tile], product[tile - 1]) if tile else done[tile])


@inlined
def _squash(costs: Costs, tiles: NDArray[Any], state: Core, times: Ints, squashed: Ints, now: int, core: int) -> None:
    """Take all calls from the squashed one on out of wherever they are."""
    first = state.squash_tile
    dispatch, start, end, done, product = times[0, core], times[3, core], times[4, core], times[5, core], times[6, core]
    for tile in range(first, state.next_dispatch):
        if dispatch[tile] < now:
            known = tile < state.completed
            stage = _QUEUE
            if tiles[core, tile].issued:
                stage = _LOADER
                if known and start[tile] < now:
                    stage = _PIPELINE
                    if end[tile] + costs.depth < now:
                        stage = _FINISHED if done[tile] < now else _OUTPUT
            squashed[stage] += 1
        tiles[core, tile].due, tiles[core, tile].issued = -1, 0
    if state.completed > first:
        state.stage_free = end[first - 1] + costs.switch if first else 0
        state.matrix_free = product[first - 1] if first else 0
        for tile in range(first, state.completed):
            if product[tile] - costs.matrix < now:
                state.matrix_free = max(state.matrix_free, product[tile])
    state.completed, state.next_issue = min(state.completed, first), min(state.next_issue, first)
    state.next_dispatch, state.hold = first, now + costs.flush_time
    state.flushed, state.squash_tile = first, -1


@inlined
def _load_activations(
    costs: Costs,
    memory: Memory,
    devices: Devices,
    activations: _Activations,
    now: int,
    core: int,
    tile: int,
) -> None:
    trigger, first, end, there, shared, fetched = activations
    for other in range(tile, max(end[tile], tile + 1)):
        if there[core, other] >= 0 or (other > tile and (other < first[tile] or trigger[other] != tile)):
            continue
        if other == tile:
            memory.activations_demanded += costs.activation_lines
        else:
            memory.activations_prefetched += costs.activation_lines
        lines = memory.demanded + memory.prefetched + memory.activations_fetched
        if shared[other] < 0 or lines - fetched[other] > costs.llc_lines:
            shared[other] = 0
            for line in range(costs.activation_lines):
                place = costs.activation_line + other * costs.activation_lines + line
                shared[other] = max(shared[other], request(costs, memory, devices, now, 0, place))
            memory.activations_fetched += costs.activation_lines
            fetched[other] = lines + costs.activation_lines
            there[core, other] = shared[other]
        else:
            there[core, other] = max(now + costs.llc_latency, shared[other])


@inlined
def _ask(costs: Costs, tile: Tile, state: Core, arrivals: Ints, memory: Memory, devices: Devices, now: int) -> bool:
    """Ask for a tile's own lines, if nobody has; whether a prefetch of them waited, which it does no more."""
    if tile.asked:
        return False
    lines = tile.side_new + tile.code_new
    for line in range(lines):
        arrivals[line] = request(costs, memory, devices, now, tile.walk, address(tile, line))
    memory.demanded += lines
    tile.asked = 1
    if not tile.waits:
        return False
    tile.waits = 0
    state.waiting -= lines
    return True


@compiled
def _set_off(
    tiles: NDArray[Any], state: Core, leaves: int, core: int, tile: int, heap: Ints, size: int
) -> tuple[Ints, int]:
    """Prefetches of other tiles, unless the tile is squashed before they leave."""
    lost = 0 <= state.squash_tile <= tile and leaves >= state.squash_at
    if not tiles[core, tile].has_set_off and not lost:
        tiles[core, tile].has_set_off = 1
        for other in range(max(tiles[core, tile].first_set_off, tile + 1), tiles[core, tile].end_set_off):
            if tiles[core, other].trigger == tile:
                due = leaves + tiles[core, other].walk
                heap, size = push(heap, size, _event(due, core, _PREFETCH, other))
    return heap, size


@inlined
def _go_through(
    costs: Costs,
    tiles: NDArray[Any],
    vops: _Vops,
    state: Core,
    arrivals: Ints,
    times: Ints,
    core: int,
    number: int,
) -> tuple[int, int]:
    """The loader and the pipeline: the cycles at which all lines are loaded, and there."""
    tile = tiles[core, number]
    occupancy, needs = vops
    row, column = (core if needs.shape[0] > 1 else 0), (number if needs.shape[1] > 1 else 0)
    issue, lines = tile.due, arrivals[core, number]
    side_arrive = code_arrive = 0
    if number:
        code_arrive = tiles[core, number - 1].code_arrive
        if tile.side > tile.side_new:
            side_arrive = tiles[core, number - 1].side_arrive
    for line in range(tile.side_new):
        side_arrive = max(side_arrive, lines[line])
    load = issue + costs.hit
    for _ in range(tile.side):
        load = max(max(issue, side_arrive) + costs.hit, load) + 1
    there = side_arrive if tile.side else 0
    first_new = tile.side_new - (needs[row, column, -1] - tile.code_new)
    loaded = 0
    free = state.stage_free
    for vop in range(needs.shape[2]):
        while loaded < needs[row, column, vop]:
            if loaded + first_new >= tile.side_new:
                code_arrive = lines[loaded + first_new]
            load = max(max(issue, code_arrive) + costs.hit, load) + 1
            there = max(there, code_arrive)
            loaded += 1
        start = max(free, load)
        if not vop:
            times[3, core, number] = start
        free = start + occupancy[row, column, vop]
    tile.side_arrive, tile.code_arrive = side_arrive, code_arrive
    times[1, core, number], times[2, core, number], times[4, core, number] = issue, there, free
    return load, max(issue, there)


@inlined
def _finish(costs: Costs, state: Core, activations_there: Ints, times: Ints, core: int, tile: int) -> None:
    """From the last vector operation to the product."""
    end = times[4, core, tile]
    state.stage_free = end + costs.switch
    out = end + costs.depth
    done = (max(out, state.fence) if costs.serial else out) + costs.back
    start = max(done, state.matrix_free)
    if tile < costs.activations:
        start = max(start, activations_there[core, tile] + costs.hit)
    state.matrix_free = start + costs.matrix
    state.fence = state.matrix_free + costs.store
    times[5, core, tile], times[6, core, tile] = done, state.matrix_free
    state.completed += 1
