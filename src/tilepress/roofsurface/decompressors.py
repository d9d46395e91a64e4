"""What undoing a weight format costs, for one matrix operation's tile of 512 weights: by libxsmm's vector instructions,
by DECA, or by nothing at all."""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..evidence import Cells, Fitted
from ..formats import WeightFormat
from ..hardware import Machine, MachineError
from ..hardware.machine import TILE_WEIGHTS
from .domains import MATRIX, MEMORY, VECTOR

GeneralRates = dict[str, float]


class Decompressor(Protocol):
    """How weights become tiles."""

    def demands(self, format: WeightFormat, density: float) -> dict[str, float]:
        """Domain → what it is asked for a tile; density 1 is dense, without a bitmask."""

    def rates(self, machine: Machine) -> GeneralRates:
        """Domain → what it does a second."""


def tile_bytes(format: WeightFormat, density: float) -> float:
    """Bytes that a tile takes in memory: codes, bitmask and scales."""
    return TILE_WEIGHTS * format.bits_per_weight(None if density == 1 else density) / 8


@dataclass(frozen=True)
class Nothing:
    """Weights that the matrix unit takes as they are; also the classical roofline of any format."""

    def __str__(self) -> str:
        return "none"

    def demands(self, format: WeightFormat, density: float) -> dict[str, float]:
        return {MEMORY: tile_bytes(format, density), MATRIX: 1.0}

    def rates(self, machine: Machine) -> GeneralRates:
        return {MEMORY: machine.memory.bandwidth, MATRIX: machine.matrix_rate}


@dataclass(frozen=True)
class Operations:
    """A kernel that somebody has counted: `count` vector operations a tile, as wide as the machine's vectors are."""

    count: float

    def __str__(self) -> str:
        return f"ops:{self.count:g}"

    def demands(self, format: WeightFormat, density: float) -> dict[str, float]:
        return {MEMORY: tile_bytes(format, density), VECTOR: self.count, MATRIX: 1.0}

    def rates(self, machine: Machine) -> GeneralRates:
        return {MEMORY: machine.memory.bandwidth, VECTOR: machine.vector_rate, MATRIX: machine.matrix_rate}


def _count(operations: float, *cells: Cells, why: str = "") -> Fitted:
    return Fitted(operations, "operation", cells, why)


# By bits of a code and whether there is a bitmask. The paper prints none of them; they are read off its results, and so
# hold the bubbles that its footnote 1 speaks of. Of sparse 4-bit weights it has no kernel: what is here is an estimate.
LIBXSMM_COUNTS: dict[tuple[int, bool], Fitted] = {
    (16, True): _count(100, *(Cells("deca/table2", "R-S", f"Q16_{percent}%") for percent in (20, 10, 5))),
    (8, True): _count(142, *(Cells("deca/table2", "R-S", f"Q8_{percent}%") for percent in (50, 30, 20, 10, 5))),
    (8, False): _count(
        114, Cells("deca/table4", "100%", "software, AVX"), Cells("deca/table4", "100%", "software, MEM")
    ),
    (4, False): _count(195, Cells("deca/table2", "R-S", "Q4"), Cells("deca/table2", "Real", "Q4")),
    (4, True): _count(223, why="estimated: dense 4-bit, and the 28 by which sparse 8-bit exceeds dense"),
}


LIBXSMM_BITS = 512  # of the vectors that operations were counted with
# Assumed, from what section 2.4 tells of libxsmm: codes, mask and store for each of a tile's 16 rows of 64 bytes.
LINE_ACCESSES = 3 * 16


@dataclass(frozen=True)
class Libxsmm:
    """Intel's kernels: a sequence of AVX-512 instructions writes tiles into a double buffer that AMX reads.

    `faster`: how many times as many vector operations a second as the machine has. `vector_bits`: 512, or more, as
    section 8.1 has it: of so many times fewer iterations, only accesses to memory remain, a cache line each.
    """

    faster: float = 1.0
    vector_bits: int = LIBXSMM_BITS

    def __post_init__(self) -> None:
        if self.vector_bits < LIBXSMM_BITS or self.vector_bits % LIBXSMM_BITS:
            raise ValueError(
                f"libxsmm's operations were counted with AVX-512: vectors have 512 bits or a multiple, not "
                f"{self.vector_bits}; a deca decompressor needs no vectors, and kernels are counted for others"
            )

    def __str__(self) -> str:
        return "libxsmm"

    def demands(self, format: WeightFormat, density: float) -> dict[str, float]:
        return {MEMORY: tile_bytes(format, density), VECTOR: self.operations(format, density), MATRIX: 1.0}

    def operations(self, format: WeightFormat, density: float) -> float:
        """Of the vector units, for a tile."""
        if format.element.bits == 16 and density == 1:
            return 0.0
        count = LIBXSMM_COUNTS.get((format.element.bits, density < 1))
        if count is None:
            sparse = "sparse " if density < 1 else ""
            raise ValueError(
                f"nobody has counted libxsmm's operations for {sparse}{format}: it has dense and sparse 8- and 4-bit "
                "and sparse 16-bit weights; a deca decompressor takes every format"
            )
        return count.value / self._wider

    def instructions(self, format: WeightFormat, density: float, per_operation: float) -> float:
        """Of the core, for a tile, where each operation on 512 bits comes with `per_operation` instructions in all.
        Wider vectors need fewer, but access as many lines."""
        operations = self._wider * self.operations(format, density)
        return LINE_ACCESSES + (per_operation * operations - LINE_ACCESSES) / self._wider if operations else 0.0

    def rates(self, machine: Machine) -> GeneralRates:
        if machine.vector is not None and machine.vector.bits != self.vector_bits:
            raise MachineError(
                f"{machine.name} has vectors of {machine.vector.bits} bits; these operations of libxsmm are of "
                f"{self.vector_bits}: take another decompressor"
            )
        rates = {MEMORY: machine.memory.bandwidth, VECTOR: self.faster * machine.vector_rate}
        return {**rates, MATRIX: machine.matrix_rate}

    @property
    def _wider(self) -> float:
        return self.vector_bits / LIBXSMM_BITS


CODE_BITS = 8  # DECA, section 6.1: the widest codes that tables take
TABLE_ENTRIES, SUB_TABLES = 1 << CODE_BITS, 4  # a table has an entry a code, in four parts with a read port each


def table_lookups(bits: int) -> int:
    """Codes of `bits` ≤ 8 bits that one table looks up in a cycle: one of eight bits, two of seven, four of fewer."""
    return min(TABLE_ENTRIES >> bits, SUB_TABLES)


@dataclass(frozen=True)
class Deca:
    """A near-core decompression engine per core: at most `width` weights leave it in a cycle, looked up in `tables`
    tables of 256 values."""

    width: int = 32
    tables: int = 8

    def __post_init__(self) -> None:
        if not 0 < self.width <= TILE_WEIGHTS or TILE_WEIGHTS % self.width:
            raise ValueError(f"a width divides {TILE_WEIGHTS}, as 8, 32 and 64 do, not {self.width}")
        if self.tables < 1:
            raise ValueError(f"at least one table is needed, not {self.tables}")

    def __str__(self) -> str:
        return f"deca:w{self.width}:l{self.tables}"

    def lookups(self, bits: int) -> int:
        """Codes of `bits` that are looked up in a cycle; 16-bit weights skip the tables."""
        return self.width if bits > CODE_BITS else self.tables * table_lookups(bits)

    def operations(self, format: WeightFormat, density: float) -> float:
        """Expected cycles a tile: one for each vector operation, and the bubbles between them."""
        per_operation = 1 + bubbles(self.width, self.lookups(format.element.bits), density)
        return TILE_WEIGHTS // self.width * per_operation

    def demands(self, format: WeightFormat, density: float) -> dict[str, float]:
        return {MEMORY: tile_bytes(format, density), VECTOR: self.operations(format, density), MATRIX: 1.0}

    def rates(self, machine: Machine) -> GeneralRates:
        rates = {MEMORY: machine.memory.bandwidth, VECTOR: machine.cycles_per_second}
        return {**rates, MATRIX: machine.matrix_rate}


@lru_cache(maxsize=4096)
def bubbles(width: int, lookups: int, density: float) -> float:
    """Expected bubbles of a vector operation (section 6.2): of its binomially many codes, `lookups` pass in a cycle."""
    nonzeros = np.arange(width + 1)
    waits = np.maximum(-(-nonzeros // lookups) - 1, 0)
    return float((_binomial(width, density) * waits).sum())


def _binomial(count: int, share: float) -> NDArray[np.float64]:
    """Probability of each number 0 … count of successes."""
    if share >= 1:
        return np.asarray(np.eye(1, count + 1, count)[0])
    logs = np.array([math.lgamma(n + 1) for n in range(count + 1)])
    successes = np.arange(count + 1)
    chances: NDArray[np.float64] = (
        logs[count] - logs - logs[::-1] + successes * math.log(share) + (count - successes) * math.log1p(-share)
    )
    return np.asarray(np.exp(chances))


def parse_decompressor(text: str, machine: Machine | None = None) -> Decompressor:
    """`none`, `libxsmm` (with the vectors of `machine`), `ops:N`, `deca` or `deca:wW:lL`."""
    if text == "none":
        return Nothing()
    if text == "libxsmm":
        return Libxsmm(vector_bits=machine.vector.bits) if machine and machine.vector else Libxsmm()
    if operations := re.fullmatch(r"ops:(\d{1,6}(?:\.\d{1,6})?)", text):
        return Operations(float(operations[1]))
    sizes = re.fullmatch(r"deca(?::w(\d{1,3}):l(\d{1,3}))?", text.lower())
    if sizes is None:
        raise ValueError(f"{text!r} is no decompressor; take none, libxsmm, kernels, ops:38, deca or deca:w32:l8, say")
    return Deca(int(sizes[1]), int(sizes[2])) if sizes[1] else Deca()
