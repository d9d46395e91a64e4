"""Round to nearest, with each group's range cut where that makes the error smaller."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..formats import Quantized, WeightFormat
from .grid import Grid, concatenated, grouped, per_stored, row_spans, spanning, ungrouped
from .threads import at_a_time, in_order

# Plain nearest rounding first, which wins where another is no better.
FACTORS = tuple(1 - step / 40 for step in range(28))
# An E8M0 scale is a power of two, rounded down, so that twice the range may be the better one.
E8M0_FACTORS = (1.0, 2.0, 0.5, 0.25)
CHUNK_WEIGHTS = 1 << 18  # what the search works on at a time: a cache's worth


def rtn(
    weight: Tensor,
    format: WeightFormat,
    *,
    mask: Tensor | None = None,
    importance: Tensor | None = None,
    clip_search: bool = True,
) -> Quantized:
    """Round each weight to the nearest number of its group's grid.

    weight: float32 [neurons, inputs], zero where dropped. mask: bool [neurons, inputs], the weights that are kept.
    importance: [inputs], what a squared error counts at each input; all the same if not given.
    clip_search: choose the group's range, a share of its extremes, by the error; else its extremes.
    """
    groups, counts = grouped(weight, format), grouped(error_counts(weight, mask, importance), format)
    grid, _ = search(groups, counts, format, clip_search, sparse=mask is not None)
    return quantized_groups(grid, groups, weight.shape[1])


def search(
    groups: Tensor, counts: Tensor, format: WeightFormat, clip_search: bool = True, *, sparse: bool = False
) -> tuple[Grid, Tensor]:
    """The grid [neurons, groups, 1] with the least error of `groups` [neurons, groups, n], and the share of their
    range that it spans.

    counts: broadcasts to `groups`; what a squared error counts at each weight, 0 where there is no weight.
    sparse: zero must be exactly one of the grid's numbers, since weights are dropped.
    """
    if format.scaling is None:
        return Grid(format.element), groups.new_ones(*groups.shape[:-1], 1)
    factors = groups.new_tensor(_factors(format, clip_search)).view(-1, 1, 1, 1)
    rows = max(1, at_a_time(CHUNK_WEIGHTS, groups.device) // (groups[0].numel() * len(factors)))
    chunks = zip(torch.split(groups, rows), torch.split(counts.expand_as(groups), rows), strict=True)
    results = in_order(lambda chunk: _search_rows(*chunk, factors, format, sparse), chunks)
    grids, shares = zip(*results, strict=True)
    return concatenated(grids), torch.cat(shares)


def error_counts(weight: Tensor, mask: Tensor | None, importance: Tensor | None) -> Tensor:
    """What a squared error counts at each weight: [inputs] or [neurons, inputs]."""
    counts = weight.new_ones(weight.shape[1]) if importance is None else importance
    return counts if mask is None else counts * mask


def quantized_groups(grid: Grid, groups: Tensor, inputs: int) -> Quantized:
    """`groups` [neurons, groups, n] rounded to `grid` [neurons, groups, 1]."""
    parts = list(in_order(lambda span: _rows(grid, span).encode(groups[span]), row_spans(groups)))
    stored = per_stored(grid, lambda per_group: per_group.squeeze(-1))
    return Quantized(ungrouped(torch.cat(parts), inputs).contiguous(), stored.scales, stored.zeros)


def stacked(parts: Sequence[Quantized]) -> Quantized:
    """Codes of some neurons each, put together."""
    if len(parts) == 1:
        return parts[0]
    codes, scales, zeros = (
        torch.cat(parts) if (parts := [array for array in arrays if array is not None]) else None
        for arrays in zip(*((part.codes, part.scales, part.zeros) for part in parts), strict=True)
    )
    assert codes is not None
    return Quantized(codes, scales, zeros)


def _search_rows(
    groups: Tensor, counts: Tensor, factors: Tensor, format: WeightFormat, sparse: bool
) -> tuple[Grid, Tensor]:
    """The grid and the share of each group, all factors tried at once along a dimension before the groups'."""
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    grids = spanning(low * factors, high * factors, format, sparse=sparse)
    errors = (grids.round(groups) - groups).square_().mul_(counts).sum(-1, keepdim=True)
    # Of equal errors the first is taken. NaN is zero times an infinite error, of ranges at the end of float32.
    best = errors.nan_to_num_(nan=torch.inf).argmin(0, keepdim=True)
    shares = factors.expand_as(errors).gather(0, best)
    return per_stored(grids, lambda stored: stored.gather(0, best).squeeze(0)), shares.squeeze(0)


def _rows(grid: Grid, span: slice) -> Grid:
    return per_stored(grid, lambda stored: stored[span])


def _factors(format: WeightFormat, clip_search: bool) -> tuple[float, ...]:
    if not clip_search:
        return FACTORS[:1]
    assert format.scaling is not None
    return E8M0_FACTORS if format.scaling.type == "e8m0" else FACTORS
