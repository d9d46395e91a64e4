"""The systems that are compared: weights as they are, decompressed by software, or by DECA, however integrated."""

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...hardware import Caches, Machine, MachineError
from ...roofsurface import VECTOR, Deca, Libxsmm
from ...roofsurface.decompressors import LIBXSMM_BITS
from .parameters import (
    DEGREE,
    LOADERS,
    PAGE_LINES,
    PREFETCH_QUEUE,
    QUEUE,
    STAGES,
    TILE_LINES,
    TRAINING,
    fitted,
)
from .plan import UNITS, Leaves, Plan
from .workload import Workload

PUBLISHED = Deca()  # section 7: 32 weights wide, eight tables
Prefetcher = Literal["none", "l2", "deca"]
Vectors = Literal["as they are", "more", "wider"]
Ints = NDArray[np.int64]


class System(Protocol):
    """What turns a workload on a machine into a plan; equal ones do the same."""

    def __hash__(self) -> int: ...

    def plan(self, machine: Machine, work: Workload) -> Plan: ...

    def busy(self, machine: Machine, work: Workload) -> float:
        """Cycles in which a core's decompressor works."""


@dataclass(frozen=True)
class Baseline:
    """The matrix unit loads bf16 weights as they lie: sixteen lines a tile, far ahead."""

    def __str__(self) -> str:
        return "baseline"

    def plan(self, machine: Machine, work: Workload) -> Plan:
        ahead = _caches(machine).l2_misses // TILE_LINES + LOADERS
        return _plan(machine, work, np.ones_like(work.lines), _nowhere(work), fitted("memory_share"), ports=ahead)

    def busy(self, machine: Machine, work: Workload) -> float:
        return 0.0


@dataclass(frozen=True)
class Software:
    """libxsmm: vector instructions write tiles into a double buffer from which the matrix unit reads. `vectors`: the
    units as they are, four times as many, or four times as wide; the core around them stays as it is."""

    vectors: Vectors = "as they are"

    def __str__(self) -> str:
        return "software" if self.vectors == "as they are" else f"software, vector units: {self.vectors}"

    def cycles(self, machine: Machine, work: Workload) -> int:
        """Of one core for one tile."""
        libxsmm = Libxsmm(vector_bits=LIBXSMM_BITS * (4 if self.vectors == "wider" else 1))
        operations = libxsmm.operations(work.format, work.density)
        if not operations:
            raise ValueError(f"{work.format} needs no decompression; take the baseline")
        each = fitted("instructions_per_vector_operation")
        instructions = libxsmm.instructions(work.format, work.density, each)
        units = Libxsmm(4 if self.vectors == "more" else 1).rates(machine)[VECTOR] / machine.cycles_per_second
        return round(max(operations / units, instructions / (machine.issue or 1)) / fitted("software_vector_share"))

    def plan(self, machine: Machine, work: Workload) -> Plan:
        cycles = np.full_like(work.lines, self.cycles(machine, work))
        # What its loads and the L2 prefetcher lose together is in the share of bandwidth that they reach.
        ahead = np.maximum(np.arange(work.tiles) - _caches(machine).l2_misses, 0)
        trigger = np.broadcast_to(ahead, work.lines.shape)
        return _plan(machine, work, cycles, trigger, fitted("software_memory_share"), ports=LOADERS)

    def busy(self, machine: Machine, work: Workload) -> float:
        """Slots lost between vector operations are not work that the units do."""
        operations = Libxsmm().operations(work.format, work.density)
        return operations * work.tiles * machine.cycles_per_second / machine.vector_rate


@dataclass(frozen=True)
class Accelerated:
    """DECA beside each core, as section 8.3 takes it apart.

    `l2`: it reads through the L2 cache rather than the last level. `prefetcher`: who fetches weights ahead; its own
    goes `degree` tiles ahead in each loader's sequence. `registers`: tiles come back through the output registers, not
    through the L2 cache. `tepl`: called out of order rather than by a store, a fence and a load. `flush_every`: of so
    many tiles one is squashed and called again, `flush_time` cycles later; 0 is none.
    """

    engine: Deca = PUBLISHED
    l2: bool = True
    prefetcher: Prefetcher = "deca"
    degree: int = DEGREE
    registers: bool = True
    tepl: bool = True
    flush_every: int = 0
    flush_time: int = 20

    def __post_init__(self) -> None:
        if self.degree < 1 or self.flush_every < 0 or self.flush_time < 1:
            raise ValueError("a degree and the time of a flush are at least 1; flush_every is 0 for never")
        if not self.l2 and self.prefetcher != "none":
            raise ValueError("prefetchers bring weights to the L2 cache; without l2 there is none")

    def __str__(self) -> str:
        return str(self.engine)

    def cycles(self, work: Workload) -> Ints:
        """[cores, tiles]: a vector operation takes a cycle for each set of codes that the tables look up at once."""
        windows = work.windows(self.engine.width)
        lookups = self.engine.lookups(work.format.element.bits)
        cycles = np.maximum(-(-windows // lookups), 1).sum(-1)
        return np.broadcast_to(cycles, work.lines.shape)

    def trigger(self, work: Workload) -> Ints:
        if self.prefetcher == "none":
            return _nowhere(work)
        if self.prefetcher == "l2":
            return page_triggers(work.code_ends, round(fitted("l2_prefetch_lines")))
        ahead = np.maximum(np.arange(work.tiles) - LOADERS * self.degree, 0)
        return np.broadcast_to(ahead, work.lines.shape)

    def plan(self, machine: Machine, work: Workload) -> Plan:
        way, hit = round(fitted("one_way")), round(_caches(machine).l2_latency)
        own = self.prefetcher == "deca"
        plan = _plan(machine, work, self.cycles(work), self.trigger(work), fitted("memory_share"), ports=LOADERS)
        return replace(
            plan,
            ports=min(LOADERS, QUEUE),
            send=way,
            walk=round(fitted("page_walk")) * page_turns(work.pages),
            leaves=Leaves.loaded if own else Leaves.arrived,
            queue=PREFETCH_QUEUE,
            switch=round(fitted("tile_switch")),
            depth=STAGES + (0 if self.registers else hit),
            back=self._back(way, hit),
            serial=not self.tepl,
            store=0 if self.tepl else way,
            flush_every=self.flush_every,
            flush_time=self.flush_time,
        )

    def busy(self, machine: Machine, work: Workload) -> float:
        return float(self.cycles(work).sum()) / work.cores + fitted("tile_switch") * work.tiles

    def _back(self, way: int, hit: int) -> int:
        """Cycles from a tile in its register, or in the L2 cache, to one in the core. A TEPL takes rows as they come; a
        load asks for them when all are there."""
        if self.tepl:
            return way if self.registers else hit
        return TILE_LINES + (2 * way if self.registers else hit)


def page_triggers(code_ends: Ints, lines_ahead: int) -> Ints:
    """Which tile sets off the L2 prefetcher for which: the first in the same page, after those that it learns from,
    that is not more than `lines_ahead` behind; -1 where there is none. Physical addresses end with their page."""
    return np.stack([_page_triggers(ends, lines_ahead) for ends in code_ends])


def _page_triggers(ends: Ints, lines_ahead: int) -> Ints:
    tiles = np.arange(len(ends))
    pages = np.maximum(ends - 1, 0) // PAGE_LINES
    first_of_page = np.searchsorted(pages, pages, side="left")
    near = np.searchsorted(ends, ends - lines_ahead, side="left")
    trigger = np.maximum(near, first_of_page + TRAINING - 1)
    return np.where(trigger < tiles, trigger, -1)


def page_turns(pages: Ints) -> Ints:
    """[cores, tiles]: 1 where a loader comes to a tile of which any part lies in a page that it has not been in, from
    `pages` [parts, cores, tiles]. Loaders take turns, and each asks for the translation of its own page."""
    before = np.full_like(pages, -1)
    before[..., LOADERS:] = pages[..., :-LOADERS]
    return np.asarray((pages != before).any(axis=0), np.int64)


def _nowhere(work: Workload) -> Ints:
    return np.broadcast_to(np.int64(-1), work.lines.shape)


def _plan(machine: Machine, work: Workload, cycles: Ints, trigger: Ints, share: float, ports: int) -> Plan:
    caches = _caches(machine)
    if machine.matrix is None or machine.matrix.cycles is None:
        raise MachineError(f"{machine.name} does not say how many cycles its matrix unit takes: add matrix.cycles")
    bytes_a_cycle = share * machine.memory.bandwidth / machine.frequency
    return Plan(
        lines=work.lines,
        cycles=np.asarray(cycles),
        trigger=np.asarray(trigger),
        walk=np.zeros_like(work.lines),
        line_time=max(round(caches.line / bytes_a_cycle * UNITS), 1),
        ports=ports,
        send=0,
        hit=round(caches.l2_latency),
        latency=round(caches.memory_latency or fitted("memory_latency")),
        leaves=Leaves.issued,
        misses=caches.l2_misses,
        queue=0,
        switch=0,
        depth=0,
        back=0,
        matrix=round(machine.matrix.cycles),
        serial=False,
        store=0,
    )


def _caches(machine: Machine) -> Caches:
    if machine.caches is None:
        raise MachineError(
            f"{machine.name} says nothing of its caches: add caches, with l2_latency, l2_misses and llc_rate"
        )
    return machine.caches
