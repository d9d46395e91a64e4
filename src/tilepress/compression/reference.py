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
    order: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Final values, float64, and the mask of those kept, both [neurons, inputs]; arguments as in `sweep.sweep`.

    hessian: [inputs, inputs], damped, so that it has an inverse.
    """
    if order is not None:
        return sweep_in_order(weight, hessian, order, keep, format, clip_search)
    weight, hessian = weight.to(torch.float64, copy=True), hessian.to(torch.float64)
    mask = keep.clone() if isinstance(keep, Tensor) else torch.ones_like(weight, dtype=torch.bool)
    inputs, grid = weight.shape[1], None
    for column in range(inputs):
        block = next(block for block in column_blocks(inputs, format) if column in block)
        if isinstance(keep, float) and column == block.start:
            count = kept_in_block(keep, len(weight), block)
            mask[:, block.start : block.stop] = choose(weight, hessian, block, count)
        if format is not None and column % group_size(inputs, format) == 0:
            grid = enter_group(weight, mask, hessian, column, format, clip_search, sparse=keep is not None)
        compensate(weight, hessian, column, mask[:, column], grid)
    return weight, mask


def sweep_in_order(
    weight: Tensor,
    hessian: Tensor,
    order: Tensor,
    keep: Tensor | float | None,
    format: WeightFormat | None,
    clip_search: bool,
) -> tuple[Tensor, Tensor]:
    """Columns in any order: the grids are chosen first, from the weights as they came, and so is how many weights of
    each block are kept, but not which."""
    swept, hessian = weight.to(torch.float64)[:, order], hessian.to(torch.float64)[order][:, order]
    place, inputs = order.argsort(), len(order)
    expected = keep[:, order] if isinstance(keep, Tensor) else torch.ones_like(swept, dtype=torch.bool)
    if isinstance(keep, float):
        expected = choose(swept, hessian, range(inputs), round(keep * swept.numel()))
    grids = None
    if format is not None:
        importance = (column_costs(hessian, range(inputs)) * expected)[:, place]
        grids = grids_of_groups((swept * expected)[:, place], importance, format, clip_search, keep is not None)
    mask = expected.clone()
    for column in range(inputs):
        block = next(block for block in column_blocks(inputs, None) if column in block)
        span = slice(block.start, block.stop)
        if isinstance(keep, float) and column == block.start:
            mask[:, span] = choose(swept, hessian, block, int(expected[:, span].sum()))
        grid = None if grids is None else grids[int(order[column])]
        compensate(swept, hessian, column, mask[:, column], grid)
    return swept[:, place], mask[:, place]


def compensate(weight: Tensor, hessian: Tensor, column: int, mask: Tensor, grid: Grid | None) -> None:
    """Give a column its final value, and the columns after it the update that makes up for the error."""
    inverse = torch.linalg.inv(hessian[column:, column:])
    value = final_value(weight[:, column], mask, grid)
    error = (weight[:, column] - value) / inverse[0, 0]
    weight[:, column:] -= torch.outer(error, inverse[0])
    weight[:, column] = value


def column_costs(hessian: Tensor, columns: range) -> Tensor:
    """What a squared error of each column costs once those before it are fixed and those after make up for it."""
    return torch.stack([1 / torch.linalg.inv(hessian[column:, column:])[0, 0] for column in columns])


def choose(weight: Tensor, hessian: Tensor, block: range, count: int) -> Tensor:
    """bool [neurons, block]: the `count` weights whose loss would cost most once the columns before them are fixed.

    Of equal ones the first columns, then the first neurons, are kept.
    """
    cost = (weight[:, block.start : block.stop].square() * column_costs(hessian, block)).T.flatten()
    order = cost.argsort(descending=True, stable=True)
    mask = torch.zeros_like(cost, dtype=torch.bool)
    mask[order[:count]] = True
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
    inputs = weight.shape[1]
    columns = range(start, min(start + group_size(inputs, format), inputs))
    span = slice(columns.start, columns.stop)
    importance = column_costs(hessian, columns) * mask[:, span]
    return chosen_grid(weight[:, span] * mask[:, span], importance, format, clip_search, sparse)


def grids_of_groups(
    weight: Tensor, importance: Tensor, format: WeightFormat, clip_search: bool, sparse: bool
) -> list[Grid]:
    """For each column the grid of its group."""
    inputs, size = weight.shape[1], group_size(weight.shape[1], format)
    spans = [slice(start, min(start + size, inputs)) for start in range(0, inputs, size)]
    grids = [chosen_grid(weight[:, span], importance[:, span], format, clip_search, sparse) for span in spans]
    return [grids[column // size] for column in range(inputs)]


def chosen_grid(group: Tensor, importance: Tensor, format: WeightFormat, clip_search: bool, sparse: bool) -> Grid:
    """The grid [neurons, 1, 1] with the least error of a group's weights [neurons, columns]."""
    group, importance = (part.to(torch.float32).unsqueeze(1) for part in (group, importance))
    return search(group, importance, format, clip_search, sparse=sparse)[0]


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
