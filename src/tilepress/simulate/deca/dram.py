"""When DRAM has read a line: channels, banks, open rows, activate windows and refresh, as JEDEC's standards time them.

`dram_reference` is the specification, command by command; this gives the same times. `serve` takes requests in the
order in which they come and fixes at once when their commands go out: at the earliest time at which no rule is broken
and no command of an earlier request moves. A later request may so go before an earlier one that waits for its bank
(first ready, first come, first served), among the `queue` reads that a channel's controller holds. It does not go
before one that closes the row it needs: a controller that holds such a one back has more row hits.

Left out: writes and the bus turnarounds they bring, contention for the command bus, ranks, and the wait for the next
clock edge of the DRAM. The address mapping is ours, after what is known of Intel's controllers (Pessl et al., DRAMA,
USENIX Security 2016): a line lies in one bank; the lowest bit that selects a bank changes with every line of a channel,
so that neighbours are in two bank groups; channels and banks are XORed with higher bits.

Times are whole units: parts of a core's cycle, `UNITS` of them.
"""

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...hardware import Dram, Machine, MachineError
from .units import UNITS

LONG_AGO = -(1 << 60)
ROUNDING = 0.997  # JESD79-5: a time may fall short by 0.3 % before it takes another clock
_TIMES = ("rcd", "cl", "rp", "ras", "rc", "rtp", "ccd_s", "ccd_l", "rrd_s", "rrd_l", "faw", "rfc", "refi")
Records = NDArray[Any]
State = tuple[Records, Records, Records, Records]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    result: _Function = njit(cache=True)(function)
    return result


@dataclass(frozen=True)
class Timing:
    """`Dram`'s times in units; `row` and `interleave` in lines, `bursts` of a line. `data`: time of a burst on the bus.
    `refresh_sets`: parts of a channel that are refreshed one after another. `mesh`: time between lines to all channels;
    `path`: what comes on top of DRAM's own time."""

    channels: int
    bank_groups: int
    banks: int
    row: int
    interleave: int
    bursts: int
    queue: int
    refresh_sets: int
    data: int
    rcd: int
    cl: int
    rp: int
    ras: int
    rc: int
    rtp: int
    ccd_s: int
    ccd_l: int
    rrd_s: int
    rrd_l: int
    faw: int
    rfc: int
    refi: int
    mesh: int = 0
    path: int = 0

    @classmethod
    def of(cls, machine: Machine) -> "Timing | None":
        """None where the machine does not describe its DRAM."""
        dram, line = machine.memory.dram, 64 if machine.caches is None else machine.caches.line
        if dram is None:
            return None
        if line % dram.burst_bytes or dram.interleave % line or dram.row % line:
            raise MachineError(
                f"{machine.name}: lines of {line} bytes do not fit memory.dram: a line is whole bursts (burst times "
                f"width, {dram.burst_bytes} bytes), row ({dram.row}) and interleave ({dram.interleave}) are whole lines"
            )
        second = machine.frequency * UNITS
        clock = dram.rate / 2
        times = {name: round(_clocks(getattr(dram, name), clock) / clock * second) for name in _TIMES}
        mesh = machine.memory.mesh_bandwidth
        return cls(
            channels=dram.channels,
            bank_groups=dram.bank_groups,
            banks=dram.banks,
            row=dram.row // line,
            interleave=dram.interleave // line,
            bursts=line // dram.burst_bytes,
            queue=dram.queue,
            refresh_sets=_refresh_sets(dram),
            data=round(dram.burst / dram.rate * second),
            **times,
            mesh=0 if mesh is None else round(line / mesh * second),
            path=round((machine.memory.path_latency or 0) * second),
        )

    @property
    def idle(self) -> int:
        """Units that a line takes when nothing else is under way and its rows are closed."""
        return self.rcd + self.cl + self.data + self.path

    def record(self) -> Any:
        """What `serve` takes."""
        return np.array([astuple(self)], _dtype(Timing))[0]


def _clocks(seconds: float, clock: float) -> int:
    return math.ceil(seconds * clock * ROUNDING)


def _refresh_sets(dram: Dram) -> int:
    return {"all-bank": 1, "same-bank": dram.banks, "single-bank": dram.bank_groups * dram.banks}[dram.refresh]


# The state is numpy's records, which compiled code gets by reference: each field is an integer.


class _Bank:
    """The row that was opened last, when it was activated, and its latest read."""

    row: int
    activated: int
    read: int


class _Command:
    time: int
    group: int


class _Totals:
    """When the mesh is free; bursts that found their row open, no row open, or another."""

    mesh_free: int
    hits: int
    closed: int
    conflicts: int


def initial(timing: Timing) -> State:
    """Nothing read yet: _Bank [channels, banks]; reads and activates that later ones must keep away from, _Command
    [channels, queue], by time; _Totals [1]."""
    banks = np.full((timing.channels, timing.bank_groups * timing.banks), LONG_AGO, _dtype(_Bank))
    reads, activates = (np.full((timing.channels, timing.queue), LONG_AGO, _dtype(_Command)) for _ in range(2))
    return banks, reads, activates, np.zeros(1, _dtype(_Totals))


def _dtype(record: type) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in record.__annotations__])


@compiled
def serve(timing: Timing, state: State, now: int, line: int) -> int:
    """The unit of time in which a line asked for at `now` has arrived; calls come in order of `now`."""
    banks, reads, activates, totals = state
    total: _Totals = totals[0]
    start = max(now, total.mesh_free)
    total.mesh_free = start + timing.mesh
    channel, bank, row = locate(timing, line)
    arrived = start
    for _ in range(timing.bursts):
        one = banks[channel, bank]
        done = _burst(timing, one, reads[channel], activates[channel], total, start, channel, bank, row)
        arrived = max(arrived, done)
    return arrived + timing.path


@compiled
def locate(timing: Timing, line: int) -> tuple[int, int, int]:
    """Channel, bank and row of a line. From its lowest bits up: place in a run of `interleave`, channel; and of what
    is left, lowest bit of the bank, column, other bits of the bank, row."""
    banks = timing.bank_groups * timing.banks
    runs, place = line // timing.interleave, line % timing.interleave
    within = runs // timing.channels * timing.interleave + place
    above = within // 2 // timing.row
    row = above // (banks // 2)
    bank = above % (banks // 2) * 2 + within % 2
    return _folded(runs, timing.channels), bank ^ _folded(row, banks), row


@compiled
def _folded(value: int, size: int) -> int:
    """All bits of a value XORed together, as many at a time as `size`, a power of two, has."""
    folded = 0
    while size > 1 and value:
        folded ^= value % size
        value //= size
    return folded


@compiled
def _burst(
    timing: Timing,
    bank: _Bank,
    reads: Records,
    activates: Records,
    total: _Totals,
    now: int,
    channel: int,
    number: int,
    row: int,
) -> int:
    """When a burst's data are there; its commands are entered."""
    start = max(now, reads[0].time + timing.cl + timing.data)  # a place in the queue
    group, phase = number % timing.bank_groups, _phase(timing, channel, number)
    opened = bank.activated
    if bank.row == row:
        read = _read_time(timing, reads, group, phase, max(start, opened + timing.rcd))
        if _refreshes(timing, phase, read) == _refreshes(timing, phase, opened):
            return _enter_read(timing, bank, reads, total, group, read, True)
    close = max(start, opened + timing.ras, bank.read + timing.rtp)
    is_open = _refreshes(timing, phase, close) == _refreshes(timing, phase, opened)
    ready = max(close + timing.rp if is_open else start, opened + timing.rc)
    activate = _activate_time(timing, activates, group, phase, ready)
    read = _read_time(timing, reads, group, phase, activate + timing.rcd)
    while _refreshes(timing, phase, read) > _refreshes(timing, phase, activate):  # closed again before it was read
        ready = phase + _refreshes(timing, phase, activate) * timing.refi
        activate = _activate_time(timing, activates, group, phase, ready)
        read = _read_time(timing, reads, group, phase, activate + timing.rcd)
    _insert(activates, activate, group)
    bank.row, bank.activated = row, activate
    if is_open:
        total.conflicts += 1
    else:
        total.closed += 1
    return _enter_read(timing, bank, reads, total, group, read, False)


@compiled
def _enter_read(timing: Timing, bank: _Bank, reads: Records, total: _Totals, group: int, read: int, hit: bool) -> int:
    total.hits += hit
    _insert(reads, read, group)
    bank.read = read
    return read + timing.cl + timing.data


@compiled
def _phase(timing: Timing, channel: int, bank: int) -> int:
    """When a bank's first refresh after time 0 begins; channels and the sets of a channel take turns."""
    part = 0 if timing.refresh_sets == 1 else bank // timing.bank_groups
    if timing.refresh_sets > timing.banks:
        part = bank
    turn, turns = channel * timing.refresh_sets + part, timing.channels * timing.refresh_sets
    return timing.refi * (2 * turn + 1) // (2 * turns)


@compiled
def _refreshes(timing: Timing, phase: int, time: int) -> int:
    """Refreshes of a bank that have begun by then, without those before time 0."""
    return (time - phase + timing.refi) // timing.refi


@compiled
def _clear(timing: Timing, phase: int, time: int, lead: int) -> int:
    """The first time from `time` on at which a bank takes a command: not while it is closed and refreshed, nor less
    than `lead` before."""
    begun = phase + (_refreshes(timing, phase, time) - 1) * timing.refi
    if time < begun + timing.rp + timing.rfc:
        return begun + timing.rp + timing.rfc
    if time + lead > begun + timing.refi:
        return begun + timing.refi + timing.rp + timing.rfc
    return time


@compiled
def _read_time(timing: Timing, reads: Records, group: int, phase: int, time: int) -> int:
    """The earliest from `time` on. What it has passed stays passed, so once over the reads is enough."""
    time = _clear(timing, phase, time, timing.rtp)
    near = max(timing.ccd_l, timing.data)
    for place in range(_after(reads, time - near), len(reads)):
        other: _Command = reads[place]
        if other.time >= time + near:
            break
        gap = max(timing.ccd_l if other.group == group else timing.ccd_s, timing.data)
        if abs(time - other.time) < gap:
            time = _clear(timing, phase, other.time + gap, timing.rtp)
    return time


@compiled
def _activate_time(timing: Timing, activates: Records, group: int, phase: int, time: int) -> int:
    time, before = _clear(timing, phase, time, timing.ras), LONG_AGO
    while time != before:
        before = time
        for place in range(_after(activates, time - timing.faw), len(activates)):
            other: _Command = activates[place]
            if other.time >= time + timing.faw:
                break
            gap = timing.rrd_l if other.group == group else timing.rrd_s
            if abs(time - other.time) < gap:
                time = _clear(timing, phase, other.time + gap, timing.ras)
            if place + 3 < len(activates):
                fourth = activates[place + 3].time
                if max(time, fourth) - min(time, other.time) < timing.faw:
                    time = _clear(timing, phase, other.time + timing.faw, timing.ras)
    return time


@compiled
def _after(commands: Records, time: int) -> int:
    """How many, of commands in order of time, are not after it."""
    low, high = 0, len(commands)
    while low < high:
        middle = (low + high) // 2
        if commands[middle].time > time:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _insert(commands: Records, time: int, group: int) -> None:
    """In order of time, in place of the first."""
    place = 0
    while place + 1 < len(commands) and commands[place + 1].time < time:
        commands[place].time, commands[place].group = commands[place + 1].time, commands[place + 1].group
        place += 1
    commands[place].time, commands[place].group = time, group
