"""GPTQ and SparseGPT as their papers derive them, the specification `sweep` is tested against; and at the end the grid
of a group, that of `source_grid`.

Columns in order; each takes its final value, and those after it take the update that makes up best for the error, by
the inverse of what is left of the Hessian, computed anew at every column in float64. Written to be read, not to be
fast.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..formats import Integer, WeightFormat
from .clipping import search
from .grid import Grid, group_size
from .source_grid import NEAR
from .sweep import column_blocks, kept_in_block


def sweep(
    weight: Tensor,
    hessian: Tensor,
    *,
    keep: Tensor | float | None = None,
    format: WeightFormat | None = None,
    clip_search: bool = True,
) -> tuple[Tensor, Tensor]:
    """Final values, float64, and the mask of those kept, both [neurons, inputs]; arguments as in `sweep.sweep`.

    hessian: [inputs, inputs], damped, so that it has an inverse.
    """
    weight, hessian = weight.to(torch.float64, copy=True), hessian.to(torch.float64)
    mask = keep.clone() if isinstance(keep, Tensor) else torch.ones_like(weight, dtype=torch.bool)
    inputs, grid = weight.shape[1], None
    for column in range(inputs):
        block = next(block for block in column_blocks(inputs, format) if column in block)
        if isinstance(keep, float) and column == block.start:
            mask[:, block.start : block.stop] = choose(weight, hessian, block, keep)
        if format is not None and column % group_size(inputs, format) == 0:
            grid = enter_group(weight, mask, hessian, column, format, clip_search, sparse=keep is not None)
        inverse = torch.linalg.inv(hessian[column:, column:])
        value = final_value(weight[:, column], mask[:, column], grid)
        error = (weight[:, column] - value) / inverse[0, 0]
        weight[:, column:] -= torch.outer(error, inverse[0])
        weight[:, column] = value
    return weight, mask


def choose(weight: Tensor, hessian: Tensor, block: range, density: float) -> Tensor:
    """bool [neurons, block]: the weights whose loss would cost most once the columns before them are fixed.

    Of equal ones the first columns, then the first neurons, are kept.
    """
    inverse_diagonal = torch.stack([torch.linalg.inv(hessian[column:, column:])[0, 0] for column in block])
    cost = (weight[:, block.start : block.stop].square() / inverse_diagonal).T.flatten()
    order = cost.argsort(descending=True, stable=True)
    mask = torch.zeros_like(cost, dtype=torch.bool)
    mask[order[: kept_in_block(density, len(weight), block)]] = True
    return mask.view(len(block), -1).T


def enter_group(
    weight: Tensor,
    mask: Tensor,
    hessian: Tensor,
    start: int,
    format: WeightFormat,
    clip_search: bool,
    *,
    sparse: bool = False,
) -> Grid:
    """The grid [neurons, 1] of the group that starts at a column, from its weights as they are by now."""
    columns = slice(start, start + group_size(weight.shape[1], format))
    inverses = [torch.linalg.inv(hessian[column:, column:]) for column in range(len(hessian))[columns]]
    costs = torch.stack([1 / inverse[0, 0] for inverse in inverses])
    group = (weight[:, columns] * mask[:, columns]).to(torch.float32)
    counts = (costs * mask[:, columns]).to(torch.float32)
    grid, _ = search(group.unsqueeze(1), counts.unsqueeze(1), format, clip_search, sparse=sparse)
    return grid


def final_value(weights: Tensor, mask: Tensor, grid: Grid | None) -> Tensor:
    """What a column of weights [neurons] becomes: rounded if there is a grid, zero if dropped."""
    if grid is not None:
        weights = grid.round(weights.to(torch.float32).view(-1, 1, 1)).flatten().to(torch.float64)
    return weights * mask


def grid_of(group: Sequence[float], element: Integer) -> tuple[float, list[int]] | None:
    """The step of the grid that a group of weights lies on, and how many steps each is from zero (signed integers) or
    from the smallest (unsigned ones); None if it lies on none that has as many numbers as the element."""
    low, high = (0.0, max(map(abs, group))) if element.signed else (min(group), max(group))
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return 1.0, [0] * len(group)
    for count in range(1, 1 + (-element.low if element.signed else element.high)):
        step = (high - low) / count
        places = [(weight - low) / step for weight in group]
        values = [round(place) for place in places]
        is_near = all(abs(place - value) <= NEAR for place, value in zip(places, values, strict=True))
        if is_near and element.low <= min(values) and max(values) <= element.high:
            return step, values
    return None
