"""One matrix product cut into steps: what each loads, computes and stores, and in which order.

The tile of one operand stays on chip while the other's pass by (Harmonia, section IV-D). Column-major: the tile of
weights stays, so activations [M, N] are read once for every k of K columns, M·N·K/k + N·K numbers in all. Row-major:
activations stay, and weights are read once for every m of M rows, N·K·M/m + M·N. A step is a tile of each. A buffer
holds two tiles, one that is computed with and one that is loaded; only tiles as small as the array may fill it alone.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...hardware import Accelerator, MachineError
from ...hardware.accelerator import Mode
from .workload import Gemm

Order = Literal["column-major", "row-major"]
ORDERS: tuple[Order, ...] = ("column-major", "row-major")
Side = Literal["activations", "weights"]


@dataclass(frozen=True)
class Step:
    """Cycles of memory for what must be there first, of the array, of what follows it, and of memory for outputs."""

    load: int
    compute: int
    post: int
    store: int


@dataclass(frozen=True)
class Plan:
    """`rows` × `columns`: a tile."""

    machine: Accelerator
    gemm: Gemm
    order: Order
    rows: int
    columns: int

    def __post_init__(self) -> None:
        _ = self.mode  # raises where the machine cannot multiply the operands

    @cached_property
    def mode(self) -> Mode:
        activations, other = self.gemm.activations, self.gemm.other
        return self.machine.mode(activations.kind, activations.mantissa, other.kind, other.mantissa)

    @property
    def group_cycles(self) -> float:
        """Of the array for one group."""
        return self.mode.cycles.of(self.gemm.activations.mantissa)

    @property
    def tile(self) -> str:
        """For people."""
        return f"{self.rows} × {self.columns}, {self.order}"

    @property
    def outer(self) -> int:
        """Tiles that stay, one after the other."""
        return self._column_tiles if self.order == "column-major" else self._row_tiles

    @property
    def inner(self) -> int:
        """Tiles that pass by each."""
        return self._row_tiles if self.order == "column-major" else self._column_tiles

    @property
    def steps(self) -> int:
        return self.outer * self.inner

    def step(self, outer: int, inner: int) -> Step:
        row, column = (inner, outer) if self.order == "column-major" else (outer, inner)
        rows = min(self.rows, self.gemm.rows - row * self.rows)
        columns = min(self.columns, self.gemm.columns - column * self.columns)
        loads = self._loads(rows, columns, first=inner == 0)
        return Step(
            self.transfer(loads),
            self.compute(rows, columns),
            self.post(rows * columns),
            self.transfer(rows * columns * self.gemm.out.bits),
        )

    def _loads(self, rows: int, columns: int, first: bool) -> float:
        """Bits; the tile that stays is loaded with the first that passes."""
        activations = rows * self.gemm.inputs * self.gemm.activations.bits
        other = columns * self.gemm.inputs * self.gemm.other.bits
        if first:
            return activations + other
        return activations if self.order == "column-major" else other

    def transfer(self, bits: float) -> int:
        """Cycles of memory."""
        return math.ceil(bits / 8 * self.machine.frequency / self.machine.memory.bandwidth)

    def compute(self, rows: int, columns: int) -> int:
        """Passes of the array, which follow each other without a gap: each has its groups of the inputs."""
        array = self.machine.array
        passes = math.ceil(rows / array.rows) * math.ceil(columns / array.columns)
        return math.ceil(passes * math.ceil(self.gemm.inputs / array.group) * self.group_cycles)

    def post(self, outputs: int) -> int:
        """The vector unit and the converter work on different outputs at the same time."""
        if self.gemm.hidden:
            return 0
        vector = math.ceil(outputs * self.gemm.vector / self.machine.vector)
        return max(vector, self.conversion(outputs))

    def conversion(self, outputs: int) -> int:
        converter = self.machine.converter
        return math.ceil(math.ceil(outputs / converter.values) * self.conversion_cycles) if converter else 0

    @property
    def conversion_cycles(self) -> float:
        """Of as many outputs as the converter takes at once; 0 where outputs stay FP16, or on chip."""
        converter, gemm = self.machine.converter, self.gemm
        if converter is None or not gemm.is_converted:
            return 0.0
        return converter.cycles.of(gemm.out.mantissa)

    @property
    def drain(self) -> int:
        """Cycles until the last unit of the array is done, after the first."""
        return self.machine.array.rows + self.machine.array.columns - 2

    @property
    def overlapped(self) -> bool:
        return self.machine.converter is None or self.machine.converter.overlapped

    @cached_property
    def traffic(self) -> "Traffic":
        gemm = self.gemm
        activations = gemm.rows * gemm.inputs * gemm.activations.bits
        other = gemm.inputs * gemm.columns * gemm.other.bits
        if self.order == "column-major":
            activations *= self._column_tiles
        else:
            other *= self._row_tiles
        return Traffic(activations, other, gemm.rows * gemm.columns * gemm.out.bits)

    @property
    def _row_tiles(self) -> int:
        return math.ceil(self.gemm.rows / self.rows)

    @property
    def _column_tiles(self) -> int:
        return math.ceil(self.gemm.columns / self.columns)


@dataclass(frozen=True)
class Traffic:
    """Bits between memory and chip."""

    activations: float
    other: float
    outputs: float

    @property
    def total(self) -> float:
        return self.activations + self.other + self.outputs


def pinned_plan(machine: Accelerator, gemm: Gemm, order: Order | None = None) -> Plan:
    """With the tile and in the order of the machine's description, or in the given one; where it has a choice, in that
    of less traffic. Tiles come as near to the description's as whole passes of the array and the buffers let them."""
    rows = _nearest("activations", machine, gemm, machine.tile.rows)
    columns = _nearest("weights", machine, gemm, machine.tile.columns)
    plans = [Plan(machine, gemm, one, rows, columns) for one in _orders(machine, order)]
    return min(plans, key=lambda plan: plan.traffic.total)


def tile_sizes(side: Side, machine: Accelerator, gemm: Gemm) -> tuple[int, ...]:
    """Rows or columns that a tile can have, the fewest first: whole passes of the array as long as the buffer holds two
    tiles. A tile of one pass may fill it alone."""
    is_rows = side == "activations"
    operand, capacity = gemm.activations if is_rows else gemm.other, getattr(machine.buffers, side)
    one_pass, needed = (machine.array.rows, gemm.rows) if is_rows else (machine.array.columns, gemm.columns)
    line = gemm.inputs * operand.bits / 8  # bytes of a row or a column
    sizes = [min(passes * one_pass, needed) for passes in range(1, math.ceil(needed / one_pass) + 1)]
    if sizes[0] * line > capacity:
        raise MachineError(
            f"{machine.name}: a tile of {sizes[0]} × {gemm.inputs} {side} of {operand.bits:g} bits ({gemm.name}) is "
            f"larger than its buffer of {capacity} bytes: give it a larger buffers.{side}, or a smaller array"
        )
    return (sizes[0], *(size for size in sizes[1:] if 2 * size * line <= capacity))


def _nearest(side: Side, machine: Accelerator, gemm: Gemm, target: int) -> int:
    sizes = tile_sizes(side, machine, gemm)
    one_pass = machine.array.rows if side == "activations" else machine.array.columns
    return sizes[min(max(round(target / one_pass), 1), len(sizes)) - 1]


def _orders(machine: Accelerator, order: Order | None) -> tuple[Order, ...]:
    if order:
        return (order,)
    return ORDERS if machine.dataflow == "best" else (machine.dataflow,)
