"""The grids that a sweep rounds columns to: of each group as it is entered, or all of them chosen beforehand."""

from typing import Protocol

from torch import Tensor

from ..formats import Quantized, WeightFormat
from .clipping import quantized_groups, search
from .grid import Grid, concatenated, group_size, grouped, per_stored


class Grids(Protocol):
    """The grids of some neurons, `size` columns each. Columns are counted as the weights came."""

    size: int

    def begins(self, column: int) -> bool:
        """Whether a grid is chosen when that column is reached."""

    def enter(self, group: Tensor, counts: Tensor) -> None:
        """Choose the grid of a group from its weights [columns, neurons] and what their errors count."""

    def round(self, column: int, weights: Tensor) -> Tensor:
        """The numbers nearest to a column of weights [neurons]."""

    def quantized(self, values: Tensor) -> Quantized:
        """Rounded values [neurons, inputs] as codes."""


class GridsOnTheWay:
    """A group's grid is chosen when its first column is reached, from its weights as they are by then."""

    def __init__(self, inputs: int, format: WeightFormat, clip_search: bool, sparse: bool) -> None:
        self.format, self.size, self.clip_search, self.sparse = format, group_size(inputs, format), clip_search, sparse
        self.grids: list[Grid] = []  # of each group, [neurons, 1, 1]
        self.grid = Grid(format.element)  # of the last, [neurons]

    def begins(self, column: int) -> bool:
        return column % self.size == 0

    def enter(self, group: Tensor, counts: Tensor) -> None:
        group, counts = (per_column.T.contiguous().unsqueeze(1) for per_column in (group, counts))
        grid, _ = search(group, counts, self.format, self.clip_search, sparse=self.sparse)
        self.grids.append(grid)
        self.grid = per_stored(grid, Tensor.flatten)

    def round(self, column: int, weights: Tensor) -> Tensor:
        return self.grid.round(weights)

    def quantized(self, values: Tensor) -> Quantized:
        return quantized_groups(concatenated(self.grids, 1), grouped(values, self.format), values.shape[1])


class GridsBeforehand:
    """All grids are chosen from the weights as they came ("static groups"), so that columns may come in any order while
    a group stays a run of neighbours."""

    def __init__(
        self, weight: Tensor, counts: Tensor, mask: Tensor | None, format: WeightFormat, clip_search: bool
    ) -> None:
        """weight: [neurons, inputs]. counts: [inputs], what errors count. mask: bool, the weights that will be kept."""
        kept, counts = (weight, counts) if mask is None else (weight * mask, counts * mask)
        self.format, self.size = format, group_size(weight.shape[1], format)
        groups, counts = grouped(kept, format), grouped(counts, format)
        self.grid, _ = search(groups, counts, format, clip_search, sparse=mask is not None)  # [neurons, groups, 1]

    def begins(self, column: int) -> bool:
        return False

    def enter(self, group: Tensor, counts: Tensor) -> None:
        raise AssertionError("all grids are chosen")

    def round(self, column: int, weights: Tensor) -> Tensor:
        group = column // self.size
        return per_stored(self.grid, lambda stored: stored[:, group, 0]).round(weights)

    def quantized(self, values: Tensor) -> Quantized:
        return quantized_groups(self.grid, grouped(values, self.format), values.shape[1])
