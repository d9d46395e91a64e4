"""Runs an element in Amaranth's simulator, between a memory with given latencies and a core that reads all rows.

Cycles are counted as `simulate.units.deca_pe` does: tiles are called in cycle 0, the first request is made in cycle 1.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from amaranth import Cat, Value
from amaranth.sim import Simulator
from torch import Tensor

from ...hardware.machine import TILE_WEIGHTS
from ...simulate.units.deca_pe import Latency
from ...tiles import PackedMatrix
from ...tiles.layout import element_order
from .image import image_of, table_words
from .parameters import LINE_BITS, LOADERS, ROWS, VALUE_BITS, Parameters, control_of
from .pe import Pe

Watch = Callable[[Pe], Callable[[Any], Any]]  # of an element, a background process that looks on
Allows = Callable[[], bool]  # whether core or memory is willing, asked for each handshake in each cycle
PATIENCE = 10_000  # cycles without a finished tile after which the element is taken to hang


@dataclass(frozen=True, eq=False)
class Run:
    """`values`: bf16 [tiles, 16 neurons, 32 inputs]; `finished`: the cycle in which the last row of each was read.
    Cycles of the first stage: `bubbles` beyond the first of a vOp, `starved` of input."""

    values: Tensor
    finished: list[int]
    bubbles: int
    starved: int


@dataclass(frozen=True, eq=False)
class Job:
    """All tiles of a matrix; in cycles of `squash_at` the core squashes what it has called."""

    matrix: PackedMatrix
    latency: Latency
    squash_at: Collection[int] = ()
    allows: Allows = lambda: True


def run(parameters: Parameters, jobs: Sequence[Job], watch: Watch | None = None) -> list[Run]:
    """Jobs one after another on one element, which is set up anew for each."""
    pe, runs = Pe(parameters), []

    async def bench(context: Any) -> None:
        for job in jobs:
            runs.append(await _Bench(pe, job, context).run())

    simulator = Simulator(pe)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    if watch:
        simulator.add_testbench(watch(pe), background=True)
    simulator.run()
    return runs


def _placed(rows: list[int]) -> Tensor:
    """[tiles, neurons, inputs] of all rows in order."""
    words = b"".join(row.to_bytes(LINE_BITS // 8, "little") for row in rows)
    elements = np.frombuffer(words, np.int16).reshape(-1, TILE_WEIGHTS)
    return torch.from_numpy(elements[:, element_order(VALUE_BITS)]).view(torch.bfloat16)


@dataclass
class _Port:
    """What core and memory know of a loader. `next`: the tile that it is to take next. `lines`: on their way to it, as
    (cycle of arrival, tile, number, payload). `owed`: requests and rows that it must go on offering."""

    next: int
    tile: int = -1
    rows: list[int] = field(default_factory=list)
    lines: list[tuple[int, int, int, dict[str, Any]]] = field(default_factory=list)
    owed: dict[str, Any] = field(default_factory=dict)

    def arrived(self, cycle: int) -> Any:
        """The first of its tile's lines that have come, then those of squashed tiles."""
        arrived = [line for line in self.lines if line[0] <= cycle]
        return min(arrived, key=lambda line: (line[1] != self.tile, line[2]), default=None)


class _Bench:
    """Core and memory, a cycle after another."""

    def __init__(self, pe: Pe, job: Job, context: Any) -> None:
        self.pe, self.job, self.context, self.image = pe, job, context, image_of(job.matrix)
        self.ports = [_Port(next=index) for index in range(LOADERS)]
        self.rows: dict[int, list[int]] = {}
        self.finished: dict[int, int] = {}
        self.bubbles = self.starved = self.cycle = 0

    async def run(self) -> Run:
        await self._set_up()
        while len(self.finished) < len(self.image.tiles):
            if self.cycle > max(self.finished.values(), default=0) + PATIENCE:
                raise RuntimeError(f"the element gave {len(self.finished)} of {len(self.image.tiles)} tiles, no more")
            squash = self.cycle in self.job.squash_at
            if squash:
                self._forget()
            inputs = [pair for index, port in enumerate(self.ports) for pair in self._inputs(index, port)]
            self._drive([(self.pe.squash, squash), *inputs])
            for index, port in enumerate(self.ports):
                self._observe(index, port)
            self.bubbles += self.context.get(self.pe.bubble)
            self.starved += self.context.get(self.pe.starved)
            self.cycle += 1
            await self.context.tick()
        tiles = range(len(self.image.tiles))
        values = _placed([row for tile in tiles for row in self.rows[tile]])
        return Run(values, [self.finished[tile] for tile in tiles], self.bubbles, self.starved)

    async def _set_up(self) -> None:
        """Control registers and tables; the squash lets tiles begin with the first loader again."""
        matrix, write = self.job.matrix, self.pe.write
        element = matrix.format.element
        self._drive([(self.pe.squash, 1), (self.pe.control, control_of(matrix.format, matrix.sparse))])
        await self.context.tick()
        words = table_words(element) if element.bits < VALUE_BITS else ()
        for entry, value in words:
            self._drive([(write.valid, 1), (write.payload, {"entry": entry, "value": value})])
            await self.context.tick()
        self._drive([(write.valid, 0)])

    def _drive(self, values: Iterable[tuple[Any, Any]]) -> None:
        """All at once: the simulator settles after each change."""
        signals = [(Value.cast(signal), _word(signal, value)) for signal, value in values]
        word, position = 0, 0
        for signal, value in signals:
            word |= value << position
            position += len(signal)
        self.context.set(Cat(signal for signal, _ in signals), word)

    def _forget(self) -> None:
        """Tiles that were squashed are called again."""
        first = next(tile for tile in range(len(self.image.tiles)) if tile not in self.finished)
        for index, port in enumerate(self.ports):
            port.next, port.tile, port.rows, port.owed = first + index, -1, [], {}

    def _inputs(self, index: int, port: _Port) -> Iterator[tuple[Any, Any]]:
        """All inputs at a loader."""
        allows, tile = self.job.allows, self.pe.tile[index]
        yield self.pe.request[index].ready, allows()
        yield self.pe.row[index].ready, allows()
        calls = port.next < len(self.image.tiles) and allows()
        yield tile.valid, calls
        if calls:
            yield tile.payload, self.image.tiles[port.next]
        line = port.arrived(self.cycle) if allows() else None
        yield self.pe.line[index].valid, line is not None
        if line:
            port.lines.remove(line)
            yield self.pe.line[index].payload, line[3]

    def _observe(self, index: int, port: _Port) -> None:
        """What passes at a loader in this cycle, at its end."""
        request, row, tile = (getattr(self.pe, name)[index] for name in ("request", "row", "tile"))
        if self._passes(request, "request", port):
            self._request(self.context.get(request.payload), port)
        if self._passes(row, "row", port):
            port.rows.append(self.context.get(row.payload))
            if len(port.rows) == ROWS:
                self.rows[port.tile], self.finished[port.tile] = port.rows, self.cycle
        if self.context.get(tile.valid) and self.context.get(tile.ready):
            port.tile, port.next, port.rows = port.next, port.next + LOADERS, []

    def _request(self, request: Any, port: _Port) -> None:
        number = request.tag.line
        arrives = self.cycle + self.job.latency(port.tile, number)
        line = {"tag": request.tag, "data": self.image.lines[request.address]}
        port.lines.append((arrives, port.tile, number, line))

    def _passes(self, stream: Any, name: str, port: _Port) -> bool:
        """Whether both sides agree. What was offered and not taken must be offered again, the same."""
        valid, ready = self.context.get(stream.valid), self.context.get(stream.ready)
        word = self.context.get(Value.cast(stream.payload)) if valid else None
        if port.owed.pop(name, word) != word:
            raise RuntimeError(f"the element withdrew a {name} in cycle {self.cycle}")
        if valid and not ready:
            port.owed[name] = word
        return bool(valid and ready)


def _word(signal: Any, value: Any) -> int:
    """The bits of a value, of a field's name → value if the signal has fields."""
    return int(signal.shape().const(value).as_bits()) if isinstance(value, dict) else int(value)
