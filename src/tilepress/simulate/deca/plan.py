"""A run as both engines take it: what each tile asks for, and how long each step takes, in cycles."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNITS = 4096  # parts of a cycle that the memory's time is counted in
Ints = NDArray[np.int64]


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

    `trigger`: the tile that sets off the prefetch of this one, when it is issued or, if `after_load`, loaded, and
    `delay` cycles have passed; -1 where nothing does. A prefetch is dropped if the core would have more than `misses`
    lines on their way by prefetches. `serial`: the core reads a tile, multiplies it and tells the engine of the next
    but one before it may read another; `store` is how long that telling takes. Each `flush_every`-th tile, if that is
    not 0, is squashed as it is issued, and issued again `flush_time` later, with those that come after it.
    """

    lines: Ints
    cycles: Ints
    trigger: Ints
    line_time: int
    ports: int
    send: int
    hit: int
    latency: int
    delay: int
    after_load: bool
    misses: int
    switch: int
    depth: int
    back: int
    matrix: int
    serial: bool
    store: int
    flush_every: int = 0
    flush_time: int = 0

    def __post_init__(self) -> None:
        if not self.lines.shape == self.cycles.shape == self.trigger.shape or not self.lines.size:
            raise ValueError("a plan has lines, cycles and triggers for the same tiles, and some")
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
