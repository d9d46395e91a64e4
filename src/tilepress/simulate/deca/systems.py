"""The systems that are compared: weights as they are, decompressed by software, or by DECA, however integrated."""

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...formats import WeightFormat
from ...hardware import Caches, Machine, MachineError
from ...hardware.machine import TILE_WEIGHTS
from ...roofsurface import VECTOR, Deca, Libxsmm
from ...roofsurface.decompressors import LIBXSMM_BITS
from .dram import Timing
from .parameters import (
    BRANCH_LATENCY,
    DEGREE,
    LOADER_LINES,
    LOADERS,
    MISPREDICTION,
    PREFETCH_QUEUE,
    QUEUE,
    REORDER_BUFFER,
    STAGES,
    TILE_INSTRUCTIONS,
    TILE_LINES,
    TRAINING,
    WEIGHT_REGISTERS,
    fitted,
)
from .plan import Leaves, Plan
from .units import PAGE_LINES, UNITS
from .workload import Workload

PUBLISHED = Deca()  # section 7: 32 weights wide, eight tables
Prefetcher = Literal["none", "l2", "deca"]
Vectors = Literal["as they are", "more", "wider"]
Ints = NDArray[np.int64]


class System(Protocol):
    """What turns a workload on a machine into a plan; equal ones do the same."""

    def __hash__(self) -> int: ...

    def plan(self, machine: Machine, work: Workload, rows: int = 1) -> Plan:
        """With `rows` rows of activations, 16 at most."""

    def busy(self, machine: Machine, work: Workload) -> float:
        """Cycles in which a core's decompressor works."""


@dataclass(frozen=True)
class Baseline:
    """The matrix unit loads bf16 weights as they lie: sixteen lines a tile, far ahead."""

    def __str__(self) -> str:
        return "baseline"

    def plan(self, machine: Machine, work: Workload, rows: int = 1) -> Plan:
        ahead = _caches(machine).l2_misses // TILE_LINES + LOADERS
        return replace(_plan(machine, work, rows, "memory_share"), ports=min(ahead, WEIGHT_REGISTERS))

    def busy(self, machine: Machine, work: Workload) -> float:
        return 0.0


@dataclass(frozen=True)
class Software:
    """libxsmm: vector instructions write tiles into a double buffer from which the matrix unit reads. `vectors`: the
    units as they are, four times as many, or four times as wide; the core around them stays as it is."""

    vectors: Vectors = "as they are"

    def __str__(self) -> str:
        return "software" if self.vectors == "as they are" else f"software, vector units: {self.vectors}"

    def cycles(self, machine: Machine, format: WeightFormat, density: float) -> int:
        """Of one core for one tile."""
        libxsmm = Libxsmm(vector_bits=LIBXSMM_BITS * (4 if self.vectors == "wider" else 1))
        operations = libxsmm.operations(format, density)
        if not operations:
            raise ValueError(f"{format} needs no decompression; take the baseline")
        each = fitted("instructions_per_vector_operation")
        instructions = libxsmm.instructions(format, density, each)
        units = Libxsmm(4 if self.vectors == "more" else 1).rates(machine)[VECTOR] / machine.cycles_per_second
        return round(max(operations / units, instructions / (machine.issue or 1)) / fitted("software_vector_share"))

    def plan(self, machine: Machine, work: Workload, rows: int = 1) -> Plan:
        plan = _plan(machine, work, rows, "software_memory_share")
        # What its loads and the L2 prefetcher lose together is in the share of bandwidth that they reach.
        ahead = np.maximum(np.arange(work.tiles) - _caches(machine).l2_misses, 0)
        occupancy = np.full_like(plan.occupancy, self.cycles(machine, work.format, work.density))
        return replace(plan, occupancy=occupancy, trigger=np.broadcast_to(ahead, work.code_ends.shape))

    def busy(self, machine: Machine, work: Workload) -> float:
        """Slots lost between vector operations are not work that the units do."""
        operations = Libxsmm().operations(work.format, work.density)
        return operations * work.tiles * machine.cycles_per_second / machine.vector_rate


@dataclass(frozen=True)
class Accelerated:
    """DECA beside each core, as section 8.3 takes it apart.

    `l2`: it reads through the L2 cache rather than the last level. `prefetcher`: who fetches weights ahead; its own
    goes `degree` tiles ahead in each loader's sequence. `registers`: tiles come back through the output registers, not
    through the L2 cache. `tepl`: called out of order rather than by a store, a fence and a load; `queue`: entries that
    such calls have, each until it commits. `flush_every`: of so many calls one follows a branch that was predicted
    wrongly, which is known `flush_after` cycles later; 0 is none.
    """

    engine: Deca = PUBLISHED
    l2: bool = True
    prefetcher: Prefetcher = "deca"
    degree: int = DEGREE
    registers: bool = True
    tepl: bool = True
    queue: int = QUEUE
    flush_every: int = 0
    flush_after: int = BRANCH_LATENCY

    def __post_init__(self) -> None:
        if min(self.degree, self.queue, self.flush_after) < 1 or self.flush_every < 0:
            raise ValueError("a degree, a queue and the time to a flush are at least 1; flush_every is 0 for never")
        if self.flush_every and not self.tepl:
            raise ValueError("calls by stores and fences are not speculative: nothing is squashed without tepl")
        if not self.l2 and self.prefetcher != "none":
            raise ValueError("prefetchers bring weights to the L2 cache; without l2 there is none")

    def __str__(self) -> str:
        return str(self.engine)

    def occupancy(self, work: Workload) -> Ints:
        """Of the first stage, by each vector operation: a cycle for each set of codes that the tables look up at
        once."""
        lookups = self.engine.lookups(work.format.element.bits)
        return np.maximum(-(-work.windows(self.engine.width) // lookups), 1)

    def trigger(self, work: Workload) -> Ints:
        if self.prefetcher == "none":
            return _nowhere(work)
        if self.prefetcher == "l2":
            return page_triggers(work.code_ends, round(fitted("l2_prefetch_lines")))
        ahead = np.maximum(np.arange(work.tiles) - LOADERS * self.degree, 0)
        return np.broadcast_to(ahead, work.code_ends.shape)

    def plan(self, machine: Machine, work: Workload, rows: int = 1) -> Plan:
        way, hit = round(fitted("one_way")), round(_caches(machine).l2_latency)
        return replace(
            _plan(machine, work, rows, "memory_share"),
            occupancy=self.occupancy(work),
            needs=work.needs(self.engine.width),
            trigger=self.trigger(work),
            walk=round(fitted("page_walk")) * page_turns(work.pages),
            leaves=Leaves.loaded if self.prefetcher == "deca" else Leaves.arrived,
            waiting=PREFETCH_QUEUE,
            send=way,
            switch=round(fitted("tile_switch")),
            depth=STAGES - 1 + (0 if self.registers else hit),
            back=self.back(way, hit),
            serial=not self.tepl,
            store=0 if self.tepl else way,
            dispatch=-(-TILE_INSTRUCTIONS // round(machine.issue or 1)),
            queue=self.queue if self.tepl else LOADERS,
            window=REORDER_BUFFER // TILE_INSTRUCTIONS,
            flush_every=self.flush_every,
            flush_after=self.flush_after,
            flush_time=MISPREDICTION,
        )

    def busy(self, machine: Machine, work: Workload) -> float:
        cycles = np.broadcast_to(self.occupancy(work).sum(-1), work.code_ends.shape)
        return float(cycles.sum()) / work.cores + fitted("tile_switch") * work.tiles

    def back(self, way: int, hit: int) -> int:
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
    return np.broadcast_to(np.int64(-1), work.code_ends.shape)


def _plan(machine: Machine, work: Workload, rows: int, share: str) -> Plan:
    """Of a core that loads whole tiles: one operation for each, which takes no time to speak of. `share`: of the
    bandwidth, that is reached."""
    caches, shape = _caches(machine), work.code_ends.shape
    if machine.matrix is None or machine.matrix.cycles is None:
        raise MachineError(f"{machine.name} does not say how many cycles its matrix unit takes: add matrix.cycles")
    side, side_new = (np.broadcast_to(one, shape) for one in work.side_lines)
    needs = work.needs(TILE_WEIGHTS)
    line_time, latency, dram = _memory(machine, fitted(share))
    return Plan(
        side=side,
        side_new=side_new,
        code_new=work.code_lines,
        occupancy=np.ones_like(needs),
        needs=needs,
        trigger=_nowhere(work),
        walk=np.zeros(shape, np.int64),
        line_time=line_time,
        latency=latency,
        dram=dram,
        ports=LOADERS,
        send=0,
        hit=round(caches.l2_latency),
        leaves=Leaves.issued,
        misses=caches.l2_misses,
        waiting=0,
        switch=0,
        depth=0,
        back=0,
        matrix=round(machine.matrix.cycles),
        serial=False,
        store=0,
        loader_lines=LOADER_LINES,
        dispatch=1,
        queue=WEIGHT_REGISTERS,
        registers=WEIGHT_REGISTERS,
        window=WEIGHT_REGISTERS,
        llc_misses=caches.llc_misses or machine.cores * caches.l2_misses,
        llc_lines=round((caches.llc_capacity or 0) / caches.line),
        llc_latency=max(round((caches.llc_latency or 0) * 1e-9 * machine.frequency), 1),
        activations=work.activation_tiles,
        activation_lines=rows,
        activation_trigger=page_triggers(np.arange(1, work.tiles + 1)[None], round(fitted("l2_prefetch_lines")))[0],
    )


def _memory(machine: Machine, share: float) -> tuple[int, int, Timing | None]:
    """Units between two lines, cycles that a line takes beside DRAM's own, and DRAM, where it is described. The latency
    is that of a line of a row that is not open, when nothing else is asked for. What is lost of the bandwidth, DRAM
    loses itself; what software loses more is lost on the way."""
    caches, dram = _caches(machine), Timing.of(machine)
    bandwidth = share * machine.memory.bandwidth
    if dram is not None:
        bandwidth = share / fitted("memory_share") * (machine.memory.mesh_bandwidth or machine.memory.bandwidth)
    line_time = max(round(caches.line / bandwidth * machine.frequency * UNITS), 1)
    latency = (caches.memory_latency or fitted("memory_latency")) * 1e-9 * machine.frequency
    if dram is None:
        return line_time, round(latency), None
    dram = replace(dram, mesh=line_time, path=0)
    return line_time, max(round(latency - dram.idle / UNITS), 0), dram


def _caches(machine: Machine) -> Caches:
    if machine.caches is None:
        raise MachineError(
            f"{machine.name} says nothing of its caches: add caches, with l2_latency, l2_misses and llc_rate"
        )
    return machine.caches
