"""All mappings of a matrix product to an array at once: both orders, and tiles of any whole number of the array's
passes, in rows and in columns, of which the buffers hold two (`plan.tile_sizes`). All inputs are in a tile. Mappings of
more steps than `engine.MOST_STEPS` are left out.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...hardware import Accelerator
from . import engine
from .costs import energy, traffic_energy
from .plan import ORDERS, Order, Plan, tile_sizes
from .workload import Gemm

Floats = NDArray[np.float64]
Cycles = Callable[[Floats, Floats], Floats]  # of a tile's rows and columns


class Cut(NamedTuple):
    """Rows or columns, or their bits, as tiles hold them: how many tiles there are, and the sizes of the first and of
    the last, which may be smaller than all others."""

    tiles: Floats
    first: Floats
    last: Floats


class Space:
    """Arrays [mappings]: the `orders` one after the other, rows of a tile before columns. What `Plan` and `engine` say
    of one mapping, this says of all."""

    def __init__(self, machine: Accelerator, gemm: Gemm, orders: tuple[Order, ...] = ORDERS) -> None:
        self.machine, self.gemm, self.orders = machine, gemm, orders
        sizes = [tile_sizes(side, machine, gemm) for side in ("activations", "weights")]
        axes = [axis.ravel() for axis in np.meshgrid(np.arange(len(orders)), *sizes, indexing="ij")]
        few = np.ceil(gemm.rows / axes[1]) * np.ceil(gemm.columns / axes[2]) <= engine.MOST_STEPS
        few[-1] |= not few.any()  # the largest tiles, which the engine refuses in words
        self.order, rows, columns = (axis[few] for axis in axes)
        self.rows, self.columns = _cut(gemm.rows, rows.astype(float)), _cut(gemm.columns, columns.astype(float))
        self.is_column_major = np.array([one == "column-major" for one in orders])[self.order]

    def plan(self, index: int) -> Plan:
        order, tile = self.orders[self.order[index]], (int(self.rows.first[index]), int(self.columns.first[index]))
        return Plan(self.machine, self.gemm, order, *tile)

    @cached_property
    def energy(self) -> Floats:
        """pJ, as often as there are such products: those of one mapping, and what others read more or less."""
        more = self.traffic - self.traffic[0]
        bit = self.gemm.count * traffic_energy(self.machine)
        return np.asarray(sum(energy(self.plan(0)).values()) + bit * more)

    @cached_property
    def traffic(self) -> Floats:
        """Bits of both operands between memory and chip."""
        gemm = self.gemm
        activations = gemm.rows * gemm.inputs * gemm.activations.bits
        other = gemm.inputs * gemm.columns * gemm.other.bits
        by_columns, by_rows = self.columns.tiles * activations + other, activations + self.rows.tiles * other
        return np.where(self.is_column_major, by_columns, by_rows)

    @cached_property
    def least_time(self) -> Floats:
        """Cycles that no simulation is below: the array, memory, or what follows the array is never idle, but for what
        must come before its first work and after its last."""
        rows, columns, drain = self.rows, self.columns, self.plan(0).drain
        first = self._transfer(self._staying.first + self._passing.first)
        outputs = self._post(rows.last, columns.last) + self._store(rows.last, columns.last)
        array = first + self.computes + drain + outputs
        load = self.loads + self._compute(rows.last, columns.last) + drain + outputs
        post = first + self._compute(rows.first, columns.first) + drain + self.posts
        return np.asarray(np.maximum.reduce([array, load, self.loads + self.stores, post]))

    @cached_property
    def loads(self) -> Floats:
        """Cycles of memory, of all steps: every tile that stays comes with the first that passes; then the others
        pass."""
        staying, passing = self._staying, self._passing
        rest = (passing.tiles - 2) * self._transfer(passing.first) + self._transfer(passing.last)
        rest = np.where(passing.tiles > 1, rest, 0)
        first, last = (self._transfer(one + passing.first) + rest for one in (staying.first, staying.last))
        return (staying.tiles - 1) * first + last

    @cached_property
    def computes(self) -> Floats:
        """Cycles of the array, of all steps."""
        return self._of_all_tiles(self._compute)

    @cached_property
    def posts(self) -> Floats:
        """Cycles of what follows the array, of all steps."""
        return self._of_all_tiles(self._post)

    @cached_property
    def stores(self) -> Floats:
        """Cycles of memory for outputs, of all steps."""
        return self._of_all_tiles(self._store)

    def _of_all_tiles(self, cycles: Cycles) -> Floats:
        rows, columns = self.rows, self.columns
        whole = (rows.tiles - 1) * (columns.tiles - 1) * cycles(rows.first, columns.first)
        right = (rows.tiles - 1) * cycles(rows.first, columns.last)
        bottom = (columns.tiles - 1) * cycles(rows.last, columns.first)
        return whole + right + bottom + cycles(rows.last, columns.last)

    def _compute(self, rows: Floats, columns: Floats) -> Floats:
        array = self.machine.array
        passes = np.ceil(rows / array.rows) * np.ceil(columns / array.columns)
        groups = np.ceil(self.gemm.inputs / array.group)
        return np.asarray(np.ceil(passes * groups * self.plan(0).group_cycles))

    def _post(self, rows: Floats, columns: Floats) -> Floats:
        if self.gemm.hidden:
            return np.zeros_like(rows)
        vector = np.ceil(rows * columns * self.gemm.vector / self.machine.vector)
        converter, cycles = self.machine.converter, self.plan(0).conversion_cycles
        if converter is None or not cycles:
            return vector
        return np.maximum(vector, np.ceil(np.ceil(rows * columns / converter.values) * cycles))

    def _store(self, rows: Floats, columns: Floats) -> Floats:
        return self._transfer(rows * columns * self.gemm.out.bits)

    def _transfer(self, bits: Floats) -> Floats:
        return np.ceil(bits / 8 * self.machine.frequency / self.machine.memory.bandwidth)

    @cached_property
    def _staying(self) -> Cut:
        """Bits of the operand whose tiles stay on chip."""
        return self._either(self._column_bits, self._row_bits)

    @cached_property
    def _passing(self) -> Cut:
        """Bits of the operand whose tiles pass by each of these."""
        return self._either(self._row_bits, self._column_bits)

    def _either(self, column_major: Cut, row_major: Cut) -> Cut:
        pairs = zip(column_major, row_major, strict=True)
        return Cut(*(np.where(self.is_column_major, one, other) for one, other in pairs))

    @cached_property
    def _row_bits(self) -> Cut:
        return _scaled(self.rows, self.gemm.inputs * self.gemm.activations.bits)

    @cached_property
    def _column_bits(self) -> Cut:
        return _scaled(self.columns, self.gemm.inputs * self.gemm.other.bits)


def _cut(total: int, size: Floats) -> Cut:
    tiles = np.ceil(total / size)
    return Cut(tiles, np.minimum(size, total), total - (tiles - 1) * size)


def _scaled(cut: Cut, bits: float) -> Cut:
    return Cut(cut.tiles, cut.first * bits, cut.last * bits)
