"""A run as both engines take it: what each tile asks for, and how long each step takes, in cycles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dram import Timing
from .units import PAGE_LINES

Ints = NDArray[np.signedinteger]


class Leaves(IntEnum):
    """What has become of a tile when the prefetches that it sets off leave."""

    issued = 0
    arrived = 1
    loaded = 2


class Stage(IntEnum):
    """Where a call of the engine is when it is squashed."""

    queue = 0  # waits for a port, or is on its way to the engine
    loader = 1  # has a loader; no vector operation has begun
    pipeline = 2  # vector operations have begun, not all have left
    output = 3  # in the output register, or on its way to the core
    finished = 4  # in the core's register, perhaps multiplied; not committed


@dataclass(frozen=True)
class Plan:
    """Arrays are [cores, tiles]; of vector operations (vOps), [cores or 1, tiles or 1, vOps of a tile].

    A tile goes through these steps; each waits for the one before and for what it needs to be free:

        dispatch   its call enters the core's queue, `dispatch` cycles after the one before: in the cycle after one of
                   `queue` entries was freed by a commit, one of `registers` and of `window` (tiles that the reorder
                   buffer spans) by a product
        issue      one of `ports` loaders is free; word of the tile takes `send` to get there
        ask        the loader asks for all lines at once: bitmask and scales (`side`), then codes; it has one tile at
                   a time and places for `loader_lines`
        arrive     a line is in the L2 cache: asked for by a prefetch before, or by the loader. Requests go to memory
                   in the order they come; at most `llc_misses` are on their way, in a ring: each waits for the one
                   that many before it. `dram` serves them, or a queue, `line_time` units each; the way takes
                   `latency` more
        load       `hit` cycles after both; one line a cycle, in order
        vOp        in order: enters the first stage when all of `side` and the first `needs` lines of codes are loaded
                   and the vOp before has left it. It stays for `occupancy` cycles, then `depth` in later stages.
                   Between two tiles the first stage is empty for `switch` cycles
        done       `back` cycles after the last vOp: the core has the tile, its port is free
        product    the matrix unit is free and the tile's activations have been in the cache for `hit`; `matrix` cycles
        commit     of the call: it is done and all products before are

    `side_new`, `code_new`: those of the lines that no earlier tile has asked for. One line of codes more than new ones
    is shared with the tile before; its side lines that are not new are those of the tile before.

    `trigger`: the tile that sets off the prefetch of this one, -1 where none does; `leaves` says when. Before that the
    tile's address is translated, which takes `walk` cycles where it is in a page that is new; a tile that asks for its
    lines itself has them so much later. A core has no more than `misses` lines on their way by prefetches: more wait
    in line for them, `waiting` lines at most, and beyond those are dropped. A tile that is issued while its prefetch
    waits asks itself.

    The first `activations` tiles of a core need `activation_lines` lines of activations each, which all cores share.
    They are asked for at dispatch, by the tile itself or by the one that is its `activation_trigger` [tiles]. The first
    core to ask has them from memory; others have them from the last level of cache, `llc_latency` after they ask, if
    no more than `llc_lines` have come from memory since; else from memory again.

    `serial`: the core reads a tile, multiplies it and tells the engine of the next but one before it may read another;
    `store` is how long that telling takes. Of `flush_every` tiles, if that is not 0, one follows a branch that was
    predicted wrongly, which is known `flush_after` cycles after its dispatch: its call and all later ones are squashed,
    wherever they are, and dispatched again `flush_time` later. What they have asked memory for stays asked for.
    """

    side: Ints
    side_new: Ints
    code_new: Ints
    occupancy: Ints
    needs: Ints
    trigger: Ints
    walk: Ints
    line_time: int
    ports: int
    send: int
    hit: int
    latency: int
    leaves: Leaves
    misses: int
    waiting: int
    switch: int
    depth: int
    back: int
    matrix: int
    serial: bool
    store: int
    loader_lines: int
    dispatch: int
    queue: int
    registers: int
    window: int
    llc_misses: int
    llc_lines: int
    llc_latency: int
    activations: int
    activation_lines: int
    activation_trigger: Ints
    dram: Timing | None = None
    flush_every: int = 0
    flush_after: int = 0
    flush_time: int = 0

    def __post_init__(self) -> None:
        shapes = {one.shape for one in (self.side, self.side_new, self.code_new, self.trigger, self.walk)}
        if len(shapes) > 1 or not self.side.size:
            raise ValueError("a plan has lines, triggers and walks for the same tiles, and some")
        self._check_vops()
        self._check_counts()
        known = np.where(self.trigger < 0, np.maximum.accumulate(self.trigger, axis=1), self.trigger)
        if (np.diff(known, axis=1) < 0).any():
            raise ValueError("a later tile is not set off by an earlier one")

    def _check_vops(self) -> None:
        same = self.occupancy.shape == self.needs.shape
        if not same or any(a not in (1, b) for a, b in zip(self.needs.shape, self.side.shape, strict=False)):
            raise ValueError("a plan has occupancy and needs for the same vector operations")
        if self.occupancy.min() < 1 or (np.diff(self.needs) < 0).any():
            raise ValueError("a vector operation takes at least a cycle, and needs what those before it do")
        if (self.side + self.needs[..., -1]).max() > self.loader_lines:
            raise ValueError(f"a loader has room for {self.loader_lines} lines, fewer than a tile has")
        shared = self.needs[..., -1] - self.code_new
        if shared.min() < 0 or shared.max() > 1 or (self.side < self.side_new).any():
            raise ValueError("a tile loads its new lines, and of codes one more at most")
        if min(self.side_new.min(), self.code_new.min()) < 0:
            raise ValueError("a tile loads its new lines, and of codes one more at most")

    def _check_counts(self) -> None:
        if self.walk.min() < 0 or min(self.misses, self.waiting, self.llc_lines, self.activations) < 0:
            raise ValueError("a plan's walks, misses, waiting lines and activations are not negative")
        counts = (self.ports, self.line_time, self.matrix, self.dispatch, self.queue, self.registers, self.window)
        if min(*counts, self.llc_misses, self.llc_latency, self.activation_lines) < 1:
            raise ValueError("a plan's times and resources are at least 1")
        if self.hit < 1:
            raise ValueError("nothing comes out of a cache in the cycle in which it is asked for")
        if self.activations > self.side.shape[1] or self.activation_trigger.shape != self.side.shape[1:]:
            raise ValueError("a plan's activations are of its tiles")
        if self.flush_every and (self.serial or self.flush_after < 1 or self.flush_time < 1):
            raise ValueError("what is called by stores and fences is never squashed; a squash takes time")

    def addresses(self) -> tuple[Ints, Ints, int]:
        """In lines: of the first new side line and line of codes of each tile, and of the first of activations. Each
        array of each core is in one piece, from a page's beginning on: all codes, all side lines, activations."""
        starts, at = [], 0
        for new in (self.code_new, self.side_new):
            ends = np.cumsum(new, axis=1)
            pages = -(-ends[:, -1] // PAGE_LINES) * PAGE_LINES
            first = at + np.cumsum(pages) - pages
            starts.append(first[:, None] + ends - new)
            at += int(pages.sum())
        code_line, side_line = starts
        return side_line, code_line, at

    @property
    def lines(self) -> Ints:
        """[cores, tiles]: lines that a tile is the first to ask for."""
        return self.side_new + self.code_new

    @property
    def cycles(self) -> Ints:
        """[cores, tiles]: of the first stage."""
        return np.asarray(np.broadcast_to(self.occupancy.sum(-1, dtype=np.int64), self.side.shape))


class Costs(Plan):
    """What a plan says of all tiles alike, as compiled code has it, and where activations lie."""

    has_dram: bool
    activation_line: int


@dataclass(frozen=True)
class Trace:
    """What became of a plan: for each tile the cycles at which it was dispatched, issued, had arrived, started, had
    left the first stage and was done, and its product ended; lines that tiles themselves asked for, that prefetches
    did, and prefetches that were dropped; lines of activations likewise, and those that came from memory; calls that
    were squashed, by stage."""

    dispatch: Ints
    issue: Ints
    arrive: Ints
    start: Ints
    end: Ints
    done: Ints
    product: Ints
    demanded: int
    prefetched: int
    dropped: int
    activations_demanded: int
    activations_prefetched: int
    activations_fetched: int
    squashed: tuple[int, ...]

    @classmethod
    def of(cls, times: Mapping[str, Ints], counts: Mapping[str, int], squashed: Iterable[int]) -> "Trace":
        fields: dict[str, Any] = {**times, **counts, "squashed": tuple(int(one) for one in squashed)}
        return cls(**fields)

    @property
    def cycles(self) -> int:
        return int(self.product.max())


TIMES = ("dispatch", "issue", "arrive", "start", "end", "done", "product")
COUNTS = (
    "demanded",
    "prefetched",
    "dropped",
    "activations_demanded",
    "activations_prefetched",
    "activations_fetched",
    "squashed",
)
