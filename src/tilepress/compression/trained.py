"""A compressed weight matrix while it is trained: kept weights, rounding and scales together.

As in AutoRound (Cheng et al. 2023) and LSQ (Esser et al. 2020): weights lie somewhere between the numbers of a grid and
are rounded to it at every step, whose gradient passes straight through; a grid's steps grow or shrink by the errors of
all weights in the group. A dropped weight stays zero, and has no gradient. `rounded` is what `compressed` stands for,
to the bit.
"""

import math

import torch
from torch import Tensor

from ..formats import WeightFormat
from ..formats.tensors import scale_values
from ..formats.zero_points import zero_values
from .clipping import quantized_groups
from .grid import Grid, grouped, spanning, ungrouped, value_range
from .weight import CompressedWeight, decompress_weight

Arrays = dict[str, Tensor]


class TrainedWeight:
    """`parameters`: what is trained, each of about the same size for all matrices:

    places     [neurons, groups, n]: the weights before they are rounded, in root mean squares of their row
    growth     [neurons, groups, 1]: natural logarithm of the step over the first one, where the format has scales
    shift      [neurons, groups, 1]: zero point less the first one, in codes, where the format has zero points
    """

    def __init__(self, start: CompressedWeight, format: WeightFormat) -> None:
        quantized, values = start.quantized, decompress_weight(start, format)
        self.format, self.inputs, self.mask = format, values.shape[1], start.mask
        self.constants: Arrays = {"unit": _root_mean_square(values, start.mask).view(-1, 1, 1)}
        self.parameters: Arrays = {"places": grouped(values, format) / self.constants["unit"]}
        if quantized.scales is not None:
            self.constants["step"] = scale_values(quantized.scales).unsqueeze(-1)
            self.parameters["growth"] = torch.zeros_like(self.constants["step"])
        if quantized.zeros is not None:
            self.constants["zero"] = zero_values(quantized.zeros, format.element).unsqueeze(-1)
            self.parameters["shift"] = torch.zeros_like(self.constants["zero"])

    @property
    def grid(self) -> Grid:
        """The grid that the parameters give, [neurons, groups, 1]."""
        if "growth" not in self.parameters:
            return Grid(self.format.element)
        step = self.constants["step"] * self.parameters["growth"].exp()
        largest = self.format.element.max
        if "shift" not in self.parameters:
            return spanning(-largest * step, largest * step, self.format)
        zero = (self.constants["zero"] + self.parameters["shift"]).clamp(0, largest)
        return spanning(-zero * step, (largest - zero) * step, self.format, sparse=self.mask is not None)

    def rounded(self) -> Tensor:
        """float32 [neurons, inputs]: the weights as they are now."""
        return self._matrix(self.grid.round(self._weights()))

    def compressed(self) -> CompressedWeight:
        """The same as codes, with the error still to be measured."""
        return CompressedWeight(quantized_groups(self.grid, self._dropped(), self.inputs), self.mask, math.nan)

    def gradients(self, gradient: Tensor) -> Arrays:
        """Of a loss by the parameters, from that by the rounded weights [neurons, inputs]."""
        if self.mask is not None:
            gradient = gradient * self.mask
        grid, weights, by_weight = self.grid, self._weights(), grouped(gradient, self.format)
        low, high = _range(grid)
        inside = (weights >= low) & (weights <= high)
        passed = by_weight * inside
        found = {"places": passed * self.constants["unit"]}
        if "growth" in self.parameters:
            by_step = by_weight * grid.round(weights) - passed * weights
            found["growth"] = by_step.sum(-1, keepdim=True)
        if "shift" in self.parameters:
            assert grid.step is not None
            found["shift"] = ((passed - by_weight) * grid.step).sum(-1, keepdim=True)
        return found

    def _weights(self) -> Tensor:
        return self.parameters["places"] * self.constants["unit"]

    def _dropped(self) -> Tensor:
        """[neurons, groups, n], zero where dropped."""
        weights = self._weights()
        return weights if self.mask is None else weights * grouped(self.mask.to(weights.dtype), self.format)

    def _matrix(self, groups: Tensor) -> Tensor:
        values = ungrouped(groups, self.inputs)
        return values if self.mask is None else values.masked_fill(~self.mask, 0)


def _range(grid: Grid) -> tuple[Tensor | float, Tensor | float]:
    """The least and the largest weight that a grid has numbers for."""
    low, high = value_range(grid.element)
    if grid.step is None:
        return low, high
    zero = 0.0 if grid.zero is None else grid.zero
    return (low - zero) * grid.step, (high - zero) * grid.step


def _root_mean_square(values: Tensor, mask: Tensor | None) -> Tensor:
    """Of each row's kept weights, [neurons]; 1 for a row of zeros."""
    kept = values.new_full((len(values),), values.shape[1]) if mask is None else mask.sum(1)
    size = (values.square().sum(1) / kept.clamp(min=1)).sqrt()
    return torch.where(size > 0, size, torch.ones_like(size))
