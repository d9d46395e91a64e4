"""The numbers that a group of weights may take, given the scale and zero point stored beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from ..formats import Element, Float, Integer, Table, WeightFormat, decode, encode
from ..formats.tensors import decode_table, encode_table, scale_values, scales_of
from ..formats.zero_points import zero_values, zeros_of
from .threads import at_a_time

CHUNK_WEIGHTS = 1 << 20  # what temporaries are made of at a time: 4 MB as float32


@dataclass(frozen=True, eq=False)
class Grid:
    """Rounds weights as `formats.quantize` does, against scales and zero points that are given.

    scales, zeros: as `Quantized` stores them, shaped to broadcast against the weights; None where the format has
    none.
    """

    element: Element
    scales: Tensor | None = None
    zeros: Tensor | None = None

    @cached_property
    def step(self) -> Tensor | None:
        """float32 value of the scales."""
        return None if self.scales is None else scale_values(self.scales)

    @cached_property
    def zero(self) -> Tensor | None:
        """float32 value of the zero points."""
        return None if self.zeros is None else zero_values(self.zeros, self.element)

    def encode(self, weight: Tensor) -> Tensor:
        """Codes of the nearest numbers of the grid."""
        return encode(self._place(weight), self.element)

    def round(self, weight: Tensor) -> Tensor:
        """The nearest numbers of the grid, float32: what the codes stand for."""
        if isinstance(self.element, Integer):
            values = self._place(weight).clamp(self.element.low, self.element.high).round()
        else:
            values = nearest_values(self._place(weight), self.element)
        if self.zero is not None:
            values = values - self.zero
        return values if self.step is None else values * self.step

    def where(self, mine: Tensor, other: "Grid") -> "Grid":
        """This grid where `mine` (bool, broadcasts to the scales) is true, else `other`."""
        return Grid(self.element, _where(mine, self.scales, other.scales), _where(mine, self.zeros, other.zeros))

    def _place(self, weight: Tensor) -> Tensor:
        """Where weights lie between the values of the element."""
        ratio = weight if self.step is None else weight / self.step
        return ratio if self.zero is None else ratio + self.zero


def nearest_values(x: Tensor, element: Element) -> Tensor:
    """decode(encode(x)), for finite x, without the way over codes where that is faster."""
    if not isinstance(element, Float | Table) or element.bits == 16:
        return decode(encode(x, element), element)
    thresholds, values = _ranked_values(element, x.device)
    if isinstance(element, Float):
        return values[torch.bucketize(x.abs(), thresholds, right=True)].copysign(x)
    return values[torch.bucketize(x, thresholds, right=True)]


@cache
def _ranked_values(element: Float | Table, device: torch.device) -> tuple[Tensor, Tensor]:
    """Thresholds, and the value of each rank: that of x is the number of thresholds ≤ x (|x| for a float)."""
    thresholds, codes = encode_table(element)
    return torch.from_numpy(thresholds).to(device), torch.from_numpy(decode_table(element)[codes]).to(device)


def spanning(low: Tensor, high: Tensor, format: WeightFormat, *, sparse: bool = False) -> Grid:
    """The grid of groups whose values reach from `low` to `high`; the one that `formats.quantize` uses."""
    if not format.has_zero_point:
        return Grid(format.element, scales_of(torch.maximum(-low, high), format))
    low, high = low.clamp(max=0), high.clamp(min=0)
    scales = scales_of(high - low, format)
    return Grid(format.element, scales, zeros_of(-low / scale_values(scales), format.element, sparse=sparse))


def per_stored(grid: Grid, change: Callable[[Tensor], Tensor]) -> Grid:
    """`grid` with `change` made to its scales and zero points, where it has them."""
    scales, zeros = (None if stored is None else change(stored) for stored in (grid.scales, grid.zeros))
    return Grid(grid.element, scales, zeros)


def concatenated(grids: Sequence[Grid], dim: int = 0) -> Grid:
    """Grids of some rows or groups each, put together."""
    scales = [grid.scales for grid in grids if grid.scales is not None]
    zeros = [grid.zeros for grid in grids if grid.zeros is not None]
    return Grid(grids[0].element, torch.cat(scales, dim) if scales else None, torch.cat(zeros, dim) if zeros else None)


def row_spans(matrix: Tensor) -> list[slice]:
    """Rows of [rows, ...] that are worked on at a time where rows do not depend on each other."""
    rows = max(1, at_a_time(CHUNK_WEIGHTS, matrix.device) // max(1, matrix[:1].numel()))
    return [slice(start, start + rows) for start in range(0, len(matrix), rows)]


def group_size(inputs: int, format: WeightFormat) -> int:
    """Inputs in a whole group; all of them where there is no scale."""
    return inputs if format.scaling is None else format.scaling.group_inputs(inputs)


def grouped(per_input: Tensor, format: WeightFormat) -> Tensor:
    """[..., inputs] cut to [..., groups, group], the last group filled up with zeros."""
    inputs = per_input.shape[-1]
    size = group_size(inputs, format)
    groups = -(-inputs // size)
    missing = groups * size - inputs
    padded = torch.nn.functional.pad(per_input, (0, missing)) if missing else per_input.contiguous()
    return padded.view(*per_input.shape[:-1], groups, size)


def ungrouped(per_group: Tensor, inputs: int) -> Tensor:
    """Undo `grouped`."""
    return per_group.flatten(-2)[..., :inputs]


def value_range(element: Element) -> tuple[float, float]:
    """The least and the largest value of an element format."""
    if isinstance(element, Integer):
        return element.low, element.high
    if isinstance(element, Table):
        return min(element.values), max(element.values)
    return -element.max, element.max


def _where(choice: Tensor, one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return None if one is None or other is None else torch.where(choice, one, other)
