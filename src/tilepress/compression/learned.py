"""Learned weight clipping: each group's range is trained for the layer's output.

Shao et al. 2023, "OmniQuant": the ends of a group's range are shares of its extremes, sigmoid(parameter), found by
gradient descent through the rounding as if it were not there.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..formats import Quantized, WeightFormat
from .clipping import error_counts, quantized_groups, search
from .grid import Grid, concatenated, grouped, spanning, ungrouped, value_range
from .threads import at_a_time, in_order, panels

STEPS = 40
LEARNING_RATE = 0.1
LARGEST_START = 0.98  # a share of one lies infinitely far out
CHUNK_WEIGHTS = 1 << 18  # trained at a time; rows are independent


def learned_clip(
    weight: Tensor,
    format: WeightFormat,
    hessian: Tensor,
    *,
    target: Tensor | None = None,
    mask: Tensor | None = None,
    clip_search: bool = True,
) -> Quantized:
    """Quantise `weight` [neurons, inputs] (zero where dropped) with the ranges that give the least output error.

    target: the weights whose outputs are to be matched, if not `weight`. Training starts from what `rtn` gives; a row
    keeps the best ranges seen, so that none ends worse than there.
    """
    target = weight if target is None else target
    rows = max(1, at_a_time(CHUNK_WEIGHTS, weight.device) // weight.shape[1])

    def train(span: slice) -> Grid:
        # Tensors made in inference mode cannot be trained through; their clones can.
        part = weight[span].clone(), target[span], None if mask is None else mask[span]
        return _Training(*part, format, hessian, clip_search).run()

    with torch.inference_mode(False), torch.enable_grad():
        grids = list(in_order(train, panels(len(weight), rows)))
    return quantized_groups(concatenated(grids), grouped(weight, format), weight.shape[1])


@dataclass
class _Training:
    """Some rows of a layer, with the arguments of `learned_clip`."""

    weight: Tensor
    target: Tensor
    mask: Tensor | None
    format: WeightFormat
    hessian: Tensor
    clip_search: bool

    def run(self) -> Grid:
        """The best grid [neurons, groups, 1]."""
        groups = grouped(self.weight, self.format)
        counts = grouped(error_counts(self.weight, self.mask, self.hessian.diagonal()), self.format)
        best, shares = search(groups, counts, self.format, self.clip_search, sparse=self.mask is not None)
        least, _ = self._loss(best.round(groups))
        # Gradients as shares of the first loss: else layers of small outputs would learn more slowly.
        unit = least.clamp(min=torch.finfo(least.dtype).tiny).view(-1, 1, 1)
        ends = shares.clamp(max=LARGEST_START).logit().repeat(2, 1, 1, 1).requires_grad_()
        adam = torch.optim.Adam([ends], lr=LEARNING_RATE)
        for _ in range(STEPS):
            grid, values = self._soft_round(groups, ends)
            loss, gradient = self._loss(values.detach())
            better = loss < least
            best, least = grid.where(better.view(-1, 1, 1), best), loss.minimum(least)
            adam.zero_grad()
            torch.autograd.backward(values, gradient / unit)
            adam.step()
        return best

    def _soft_round(self, groups: Tensor, ends: Tensor) -> tuple[Grid, Tensor]:
        """The grid that the parameters give, and the groups rounded to it, differentiable in the parameters."""
        lower, upper = ends.sigmoid()
        low, high = lower * groups.amin(-1, keepdim=True), upper * groups.amax(-1, keepdim=True)
        grid = spanning(low.detach(), high.detach(), self.format, sparse=self.mask is not None)
        assert grid.step is not None
        if grid.zero is None:
            extent = torch.maximum(-low, high)
            step = _straight_through(extent / self.format.element.max, grid.step)
            inside = (groups / step).clamp(*value_range(self.format.element))
        else:
            low, high = low.clamp(max=0), high.clamp(min=0)
            step = _straight_through((high - low) / self.format.element.max, grid.step)
            zero = _straight_through(-low / step, grid.zero)
            inside = torch.minimum(torch.maximum(groups / step, -zero), self.format.element.max - zero)
        return grid, _straight_through(inside, grid.round(groups) / grid.step) * step

    def _loss(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The output error of each row, and its gradient by `values` [neurons, groups, n]."""
        lost = ungrouped(values, self.weight.shape[1])
        if self.mask is not None:
            lost = lost * self.mask
        lost = lost - self.target
        spread = lost @ self.hessian
        gradient = spread if self.mask is None else spread * self.mask
        return (lost * spread).sum(1), grouped(gradient, self.format)


def _straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, with the gradient of `x`."""
    return x + (rounded - x).detach()
