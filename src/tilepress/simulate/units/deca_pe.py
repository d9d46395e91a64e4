"""DECA's processing element: compressed tiles become bf16 tiles, one vector operation (vOp) after another.

Two loaders take a tile each. A loader requests one line a cycle: bitmask, scales, codes; a line that comes back finds
its entry in the load unit by a search and goes, one a cycle, into the queue of its kind, if that has room. Three stages
follow, which both loaders share, vOps in order (section 6.1):

1. Dequantise. A vOp enters once its input stands in the queues: its part of the bitmask, whose set bits POPCNT counts,
   as many codes (its window), its scales. It looks up so many codes a cycle as the tables have ports; a window with
   more holds the stage longer, and the next stages get bubbles.
2. Expand. The crossbar puts each value into its lane, by the parallel prefix sum of the bitmask.
3. Scale. Each lane multiplies by its scale; the chunk goes into the tile's output register (TOut).

The core reads one complete row of a TOut a cycle. When it has read all, the loader takes its next tile. A squash drops
all tiles in the element, whatever their stage; they are called again in the next cycle.

`cycles` and `events` are formulas that the stepped element is tested against.
"""

import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ...formats import Element
from ...hardware.machine import TILE_WEIGHTS
from ...roofsurface import Deca
from .deca_arithmetic import VALUE_BITS, Bools, Floats, check_element, expand, fill_tables, look_up, scale
from .deca_tile import ENTRY_BITS, LINE_BITS, CompressedTile, placed
from .events import Counted, Events, check_positive

LOADERS = 2  # section 5.2
SQQ_LINES = 32  # table 3: 2 KB of 64 bytes
SCALE_ENTRIES = 32  # table 3: 64 bytes of 2
ROW_WEIGHTS = LINE_BITS // VALUE_BITS
ROWS = TILE_WEIGHTS // ROW_WEIGHTS
Latency = Callable[[int, int], int]  # tile, line of it → cycles from its request to its arrival, at least 1


@dataclass(frozen=True, eq=False)
class Decompressed:
    """`values`: bf16 [tiles, 16 neurons, 32 inputs]; `finished`: the cycle in which the core read the last row of each
    tile. Cycles of the first stage: `bubbles` beyond the first of a vOp, `starved` of input while a tile waited."""

    values: Tensor
    finished: list[int]
    bubbles: int
    starved: int
    cycles: int
    events: Events


def operation_cycles(window: int, lookups: int) -> int:
    """Cycles that a vOp holds the first stage."""
    return max(-(-window // lookups), 1)


def cycles(
    tiles: Sequence[CompressedTile],
    engine: Deca,
    latency: Latency,
    squash_at: Collection[int] = (),
    sqq_lines: int = SQQ_LINES,
) -> list[int]:
    """The cycle in which the core reads the last row of each tile: after a squash, what is left takes as long as in an
    element that was never used."""
    finished: list[int] = []
    for begin, end in pairwise([0, *sorted(squash_at), sys.maxsize]):
        left = _unsquashed(tiles, len(finished), engine, latency, sqq_lines)
        finished += [begin + cycle for cycle in left if begin + cycle < end]
    return finished


def _unsquashed(
    tiles: Sequence[CompressedTile], first: int, engine: Deca, latency: Latency, sqq_lines: int
) -> list[int]:
    """Of all tiles from the `first` on, from the cycle in which they are called."""
    finished: list[int] = []
    free = 1  # the first cycle in which the next vOp can enter
    for index, tile in enumerate(tiles[first:], first):
        begin = finished[-LOADERS] + 1 if len(finished) >= LOADERS else 1
        lines = _Lines(tile, [begin + line + latency(index, line) for line in range(tile.lines)], sqq_lines)
        written, codes = [], 0
        for window in tile.windows(engine.width):
            enters = max(free, lines.valid(tile.lines_before(codes + window)))
            codes += window
            lines.read(codes, enters)
            free = enters + operation_cycles(window, engine.lookups(tile.bits))
            written.append(free + 1)  # one cycle of expansion between
        finished.append(_read_out(written))
    return finished


def _read_out(written: Sequence[int]) -> int:
    """The cycle in which a tile's last row is read, from those in which its chunks are written."""
    last = 0
    for row in range(ROWS):
        chunk = -(-(row + 1) * len(written) // ROWS) - 1  # the one with the row's end
        last = max(last, written[chunk]) + 1
    return last


class _Lines:
    """When each line of a tile enters its queue: in the first cycle from its arrival in which it has room and none
    before it enters."""

    def __init__(self, tile: CompressedTile, arrivals: Sequence[int], sqq_lines: int) -> None:
        self.tile, self.arrivals, self.sqq_lines = tile, arrivals, sqq_lines
        self.entered: list[int] = []
        self.emptied: list[int] = []  # for each line of codes, when its entry became free

    def valid(self, count: int) -> int:
        """The first cycle in which all of the first `count` lines can be read."""
        while len(self.entered) < count:
            line = len(self.entered)
            leaves = line - (self.tile.lines - self.tile.code_lines) - self.sqq_lines
            enters = max(self.arrivals[line], self.emptied[leaves] if leaves >= 0 else 0)
            while enters in self.entered:
                enters += 1
            self.entered.append(enters)
        return max(self.entered[:count], default=0) + 1

    def read(self, codes: int, cycle: int) -> None:
        """`codes` codes have been read."""
        self.emptied += [cycle] * (self.tile.lines_done(codes) - len(self.emptied))


def events(tile: CompressedTile, engine: Deca) -> Events:
    """Of one tile from its requests until the core has read it."""
    operations, codes, sparse = TILE_WEIGHTS // engine.width, len(tile.codes), tile.mask is not None
    registers = TILE_WEIGHTS * sparse + ENTRY_BITS * tile.group_entries  # queues of bitmask and scales
    registers += LINE_BITS * tile.code_lines + VALUE_BITS * (codes + TILE_WEIGHTS)  # head of the SQQ, SD and DD
    return Events(
        requests=tile.lines,
        searches=tile.lines,
        line_writes=tile.code_lines + max(operations, ROWS),
        line_reads=tile.code_lines + ROWS,
        register_bits=registers,
        adds=2 * TILE_WEIGHTS * sparse,  # POPCNT and prefix sum
        lookups=codes * (tile.bits < VALUE_BITS),
        crossbar_moves=codes * sparse,
        float_adds=TILE_WEIGHTS * (tile.zeros is not None),
        float_multiplies=TILE_WEIGHTS * (tile.scales is not None),
    )


@dataclass(eq=False)
class _Operation:
    """A vOp on its way: which lanes of which tile, and the values it has so far."""

    loader: "_Loader"
    lanes: slice
    codes: deque[int]
    values: list[float] = field(default_factory=list)

    @property
    def bits(self) -> Bools:
        return self.loader.tile.kept[self.lanes]


@dataclass(eq=False)
class _Loader:
    """A load unit, its queues and its output register, at work on one tile."""

    index: int
    tile: CompressedTile
    requested: int = 0
    under_way: dict[int, int] = field(default_factory=dict)  # the CAM: line → cycle of its arrival
    entered: set[int] = field(default_factory=set)  # lines that came into their queues
    fetched: int = 0  # lines of codes that have been read out of the SQQ
    codes: int = 0  # that vOps took
    operation: int = 0  # the next to enter
    register: Floats = field(default_factory=lambda: np.zeros(TILE_WEIGHTS, np.float32))
    written: int = 0  # weights of it
    read: int = 0  # rows that the core has

    def has(self, codes: int) -> bool:
        """Whether all lines that the next `codes` codes need have come."""
        return self.entered.issuperset(range(self.tile.lines_before(self.codes + codes)))

    def is_ready(self, line: int, sqq_lines: int) -> bool:
        """Whether the line's queue has room for it."""
        place = line - (self.tile.lines - self.tile.code_lines)
        return place - self.tile.lines_done(self.codes) < sqq_lines


class Pe(Counted):
    """One element, set up for codes of one `element`. `decompress` runs its clock until the core has every tile."""

    def __init__(self, element: Element, engine: Deca | None = None, sqq_lines: int = SQQ_LINES) -> None:
        super().__init__()
        check_element(element)
        self.element, self.engine, self.sqq_lines = element, engine or Deca(), sqq_lines
        self.lookups = self.engine.lookups(element.bits)
        self.table = fill_tables(element) if element.bits < VALUE_BITS else None
        self._loaders: deque[_Loader] = deque()
        self._dequantising: _Operation | None = None
        self._sparse: _Operation | None = None  # what register SD holds
        self._dense: _Operation | None = None  # what register DD holds
        self._dropped: Counter[int] = Counter()  # lines of squashed tiles, by the cycle in which they come
        self._bubbles = self._starved = 0
        self._values: list[Tensor] = []
        self._finished: list[int] = []

    def decompress(
        self, tiles: Sequence[CompressedTile], latency: Latency, squash_at: Collection[int] = ()
    ) -> Decompressed:
        """All tiles in order; in cycles of `squash_at` the core squashes what it has called."""
        self._check(tiles)
        while len(self._finished) < len(tiles):
            self._clock(tiles, latency, self.cycles + 1 in squash_at)
        values = torch.stack(self._values) if tiles else torch.empty(0)
        return Decompressed(values, self._finished, self._bubbles, self._starved, self.cycles, self.events)

    @property
    def is_empty(self) -> bool:
        """Whether no stage, queue or register holds anything of a tile."""
        return not (self._loaders or self._dequantising or self._sparse or self._dense)

    def squash(self) -> None:
        """Drop all tiles; lines that are still to come will find no entry."""
        for loader in self._loaders:
            self._dropped.update(loader.under_way.values())
        self._loaders.clear()
        self._dequantising = self._sparse = self._dense = None

    def _clock(self, tiles: Sequence[CompressedTile], latency: Latency, squashed: bool) -> None:
        """One cycle; the last stage first, so that each takes what was in its register before."""
        self.cycles += 1
        self._count(searches=self._dropped.pop(self.cycles, 0))
        if squashed:
            self.squash()
            return
        self._call(tiles)
        self._read_out()
        self._scale()
        self._expand()
        self._dequantise()
        for loader in self._loaders:
            self._load(loader)
            self._request(loader, latency)

    def _call(self, tiles: Sequence[CompressedTile]) -> None:
        """Free loaders take the next tiles."""
        first = len(self._finished)
        for index in range(first + len(self._loaders), min(first + LOADERS, len(tiles))):
            self._loaders.append(_Loader(index, tiles[index]))

    def _read_out(self) -> None:
        """The core reads a row of each output register that has a complete one."""
        for loader in self._loaders:
            if loader.read < loader.written // ROW_WEIGHTS:
                loader.read += 1
                self._count(line_reads=1)
        if self._loaders and self._loaders[0].read == ROWS:
            self._values.append(placed(self._loaders.popleft().register))
            self._finished.append(self.cycles)

    def _scale(self) -> None:
        operation, self._dense = self._dense, None
        if operation is None:
            return
        loader, lanes = operation.loader, operation.lanes
        tile, values = loader.tile, np.array(operation.values, np.float32)
        ones, zeros = np.ones_like(values), np.zeros_like(values)
        scales = ones if tile.scales is None else tile.scales[lanes]
        points = zeros if tile.zeros is None else tile.zeros[lanes]
        loader.register[lanes] = scale(values, operation.bits, scales, points)
        loader.written += len(values)
        self._count(
            float_multiplies=len(values) * (tile.scales is not None),
            float_adds=len(values) * (tile.zeros is not None),
            line_writes=-(-len(values) // ROW_WEIGHTS),
        )

    def _expand(self) -> None:
        operation, self._sparse = self._sparse, None
        if operation is None:
            return
        if operation.loader.tile.mask is not None:
            self._count(adds=len(operation.bits), crossbar_moves=len(operation.values))
        operation.values = expand(np.array(operation.values, np.float32), operation.bits).tolist()
        self._count(register_bits=VALUE_BITS * len(operation.values))
        self._dense = operation

    def _dequantise(self) -> None:
        if self._dequantising is None:
            self._dequantising = self._entering()
        else:
            self._bubbles += 1
        operation = self._dequantising
        if operation is None:
            return
        codes = [operation.codes.popleft() for _ in range(min(self.lookups, len(operation.codes)))]
        operation.values += look_up(np.array(codes, np.int64), self.element, self.table).tolist()
        self._count(lookups=len(codes) * (self.table is not None), register_bits=VALUE_BITS * len(codes))
        if not operation.codes:
            self._sparse, self._dequantising = operation, None

    def _entering(self) -> _Operation | None:
        """The next vOp, if its input has come."""
        width = self.engine.width
        loader = next((one for one in self._loaders if one.operation * width < TILE_WEIGHTS), None)
        if loader is None:
            return None
        lanes = slice(loader.operation * width, (loader.operation + 1) * width)
        window = int(loader.tile.kept[lanes].sum())  # POPCNT
        if not loader.has(window):
            self._starved += 1
            return None
        codes = deque(loader.tile.codes[loader.codes : loader.codes + window].tolist())
        loader.codes += window
        loader.operation += 1
        self._fetch(loader)
        self._count(adds=width * (loader.tile.mask is not None))
        return _Operation(loader, lanes, codes)

    def _fetch(self, loader: _Loader) -> None:
        """Lines of codes that a vOp is the first to need go from the SQQ into the register at its head."""
        tile = loader.tile
        needed = tile.lines_before(loader.codes) - tile.mask_lines - tile.group_lines
        self._count(line_reads=needed - loader.fetched, register_bits=LINE_BITS * (needed - loader.fetched))
        loader.fetched = needed

    def _load(self, loader: _Loader) -> None:
        """Of lines that have come, the first that its queue is ready for."""
        arrived = [line for line, cycle in loader.under_way.items() if cycle <= self.cycles]
        line = next((one for one in sorted(arrived) if loader.is_ready(one, self.sqq_lines)), None)
        if line is None:
            return
        del loader.under_way[line]
        loader.entered.add(line)
        self._count(searches=1)
        tile = loader.tile
        if line < tile.mask_lines:
            self._count(register_bits=TILE_WEIGHTS)
        elif line == tile.mask_lines and tile.group_lines:
            self._count(register_bits=ENTRY_BITS * tile.group_entries)
        elif line >= tile.mask_lines + tile.group_lines:
            self._count(line_writes=1)

    def _request(self, loader: _Loader, latency: Latency) -> None:
        if loader.requested == loader.tile.lines:
            return
        after = latency(loader.index, loader.requested)
        check_positive(latency=after)
        loader.under_way[loader.requested] = self.cycles + after
        loader.requested += 1
        self._count(requests=1)

    def _check(self, tiles: Sequence[CompressedTile]) -> None:
        """Refuse what would not fit, or would never come to an end."""
        for tile in tiles:
            if tile.bits != self.element.bits:
                raise ValueError(f"the element is set up for {self.element}, not for codes of {tile.bits} bits")
            if tile.group_entries > SCALE_ENTRIES:
                raise ValueError(
                    f"scales and zero points of a tile take {tile.group_entries} entries; the scale factor queue has "
                    f"{SCALE_ENTRIES}: take larger groups"
                )
        span = -(-(self.engine.width * self.element.bits - 1) // LINE_BITS) + 1
        if self.sqq_lines < span:
            raise ValueError(f"a vector operation can need {span} lines at once; {self.sqq_lines} are too few")
