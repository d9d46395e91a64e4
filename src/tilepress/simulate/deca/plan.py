"""A run as both engines take it: what each tile asks for, and how long each step takes, in cycles."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

UNITS = 4096  # parts of a cycle that the memory's time is counted in
Ints = NDArray[np.int64]


class Leaves(IntEnum):
    """What has become of a tile when the prefetches that it sets off leave."""

    issued = 0
    arrived = 1
    loaded = 2


@dataclass(frozen=True)
class Plan:
    """Arrays are [cores, tiles].

    A tile goes through these steps, of which each waits for the one before and for what it needs to be free:

        issue      a port is free, and word of it has gone to the engine (`send`); in tile order
        arrive     its `lines` are in the L2 cache: requested by a prefetch before, or by the issue itself; requests
                   are served in the order they come, `line_time` units each, and take `latency` more
        load       `hit` cycles and one for each line
        start      the engine is free; it is busy for the tile's `cycles` and `switch` more
        out        `depth` cycles after its last
        done       the core has the tile, `back` later; its port is free
        product    the matrix unit is free; `matrix` cycles

    `trigger`: the tile that sets off the prefetch of this one, -1 where none does; `leaves` says when. Before that the
    tile's address is translated, which takes `walk` cycles where it is in a page that is new; a tile that asks for its
    lines itself has them so much later. A core has no more than `misses` lines on their way by prefetches: more wait
    in line for them, `queue` lines at most, and beyond those are dropped. A tile that is issued while its prefetch
    waits asks itself.

    `serial`: the core reads a tile, multiplies it and tells the engine of the next but one before it may read another;
    `store` is how long that telling takes. Each `flush_every`-th tile, if that is not 0, is squashed as it is issued,
    and issued again `flush_time` later, with those that come after it.
    """

    lines: Ints
    cycles: Ints
    trigger: Ints
    walk: Ints
    line_time: int
    ports: int
    send: int
    hit: int
    latency: int
    leaves: Leaves
    misses: int
    queue: int
    switch: int
    depth: int
    back: int
    matrix: int
    serial: bool
    store: int
    flush_every: int = 0
    flush_time: int = 0

    def __post_init__(self) -> None:
        shapes = {one.shape for one in (self.lines, self.cycles, self.trigger, self.walk)}
        if len(shapes) > 1 or not self.lines.size:
            raise ValueError("a plan has lines, cycles, triggers and walks for the same tiles, and some")
        if self.walk.min() < 0 or self.misses < 0 or self.queue < 0:
            raise ValueError("a plan's walks, misses and queue are not negative")
        if self.lines.min() < 0 or self.cycles.min() < 1 or self.ports < 1 or self.line_time < 1 or self.matrix < 1:
            raise ValueError("a plan's tiles take at least a cycle, and it has at least one port")
        if self.hit < 1:
            raise ValueError("nothing comes out of a cache in the cycle in which it is asked for")


@dataclass(frozen=True)
class Trace:
    """What became of a plan: for each tile the cycles at which it was issued, had arrived, started and was done, and
    its product ended; lines that tiles themselves asked for, that prefetches did, and prefetches that were dropped."""

    issue: Ints
    arrive: Ints
    start: Ints
    done: Ints
    product: Ints
    demanded: int
    prefetched: int
    dropped: int

    @property
    def cycles(self) -> int:
        return int(self.product.max())
