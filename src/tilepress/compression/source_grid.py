"""Weights that lie on a grid of a format already: GGUF's Q4_0, Q4_1 and Q8_0, or what was quantised to integers and
stored as floats. They are not rounded again: their codes are found, with the scale and zero point that hold them best.

The grid of a group is found by trying: its extremes are so many whole steps apart, and then all other weights must lie
on steps between. The fewest steps win: their size is the source's own number, to the bit. The plain version is
`reference.grid_of`.

What a format cannot hold to the bit is an offset that is no multiple of a sixteenth of a step (uint4), which costs up
to 1/32 of a step, and a scale of more bits than its own type has.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..formats import Integer, Quantized, WeightFormat
from ..formats.tensors import SCALE_DTYPES, scale_values
from ..formats.zero_points import LARGEST, zero_steps, zero_values
from .clipping import stacked
from .grid import group_size, row_spans

NEAR = 1 / 32  # of a step: how far from the grid a weight may lie, as floats of fewer bits do
MOST = 1 / 16  # of a step: how far from what is stored
SAMPLE = 16  # rows that are tried first
FEW = 4  # weights of a group that are tried first
TRIED = 64  # groups that are tried with every number of steps at once


@dataclass(frozen=True, eq=False)
class SourceGrid:
    """`quantized`: the weights' own codes. `error`: the largest distance from what they stand for, in steps."""

    quantized: Quantized
    error: float


def find_grid(weight: Tensor, format: WeightFormat) -> SourceGrid | None:
    """The grid that a matrix [neurons, inputs] lies on, in the format's groups; None if it lies on none, or the format
    cannot hold it to a sixteenth of a step."""
    if not isinstance(format.element, Integer) or format.scaling is None or format.scaling.type == "e8m0":
        return None
    parts = []
    for span in (slice(SAMPLE), *row_spans(weight)):
        part = _grid_of_rows(weight[span].to(torch.float32), format)
        if part is None:
            return None
        parts.append(part)
    whole = parts[1:]
    return SourceGrid(stacked([part.quantized for part in whole]), max(part.error for part in whole))


def _grid_of_rows(weight: Tensor, format: WeightFormat) -> SourceGrid | None:
    groups, element = _grouped(weight, format), format.element
    assert isinstance(element, Integer)
    found = _search(groups.flatten(0, 1), element)
    if found is None:
        return None
    steps, values = found[0].view(groups.shape[:2]), found[1].view(groups.shape)
    scales = _stored(steps, format)
    zeros, shift = _zeros(groups, values, steps, format)
    placed = values if shift is None else values + shift[..., None]
    zero = 0 if zeros is None else zero_values(zeros, element)[..., None]
    off = ((placed - zero) * scale_values(scales)[..., None]).sub_(groups).abs_().amax(-1)
    error = float((off / scale_values(scales)).max())
    if not error <= MOST:
        return None
    codes = placed.to(torch.int16).bitwise_and(element.codes - 1).to(torch.uint8)
    return SourceGrid(Quantized(codes.flatten(1)[:, : weight.shape[1]].contiguous(), scales, zeros), error)


def _search(groups: Tensor, element: Integer) -> tuple[Tensor, Tensor] | None:
    """Steps [groups] and whole numbers of them [groups, group], counted from zero for signed integers and from the
    smallest weight for unsigned; None where a group is on no grid."""
    low, span = _extremes(groups, element)
    steps, values = torch.ones_like(span), torch.zeros_like(groups)
    left = torch.nonzero(span > 0).flatten()
    most = -element.low if element.signed else element.high
    if not _may_lie_on_grids(groups[left[:TRIED], :FEW], low[left[:TRIED]], span[left[:TRIED]], most, element):
        return None
    for count in range(1, 1 + most):
        step = span / count
        maybe = left[_places(groups[left, :FEW], low[left], step[left], element)[1]]
        places, is_on = _places(groups[maybe], low[maybe], step[maybe], element)
        on = maybe[is_on]
        steps[on], values[on] = step[on], places[is_on]
        left = left[~torch.isin(left, on)]
        if not len(left):
            return steps, values
    return None if len(left) else (steps, values)


def _may_lie_on_grids(groups: Tensor, low: Tensor, span: Tensor, most: int, element: Integer) -> bool:
    """Whether every group has a number of steps, `most` at most, with which all its weights are near whole ones."""
    counts = torch.arange(1, 1 + most, dtype=span.dtype, device=span.device)[:, None]
    return bool(_places(groups, low, span / counts, element)[1].any(0).all())


def _places(groups: Tensor, low: Tensor, step: Tensor, element: Integer) -> tuple[Tensor, Tensor]:
    """The nearest whole numbers of steps; and of which groups all weights are near them, and the format has them."""
    places = (groups - low[..., None]) / step[..., None]
    whole = places.round()
    is_near = ((places - whole).abs() <= NEAR).all(-1)
    return whole, is_near & (whole.amax(-1) <= element.high) & (whole.amin(-1) >= element.low)


def _extremes(groups: Tensor, element: Integer) -> tuple[Tensor, Tensor]:
    """Where steps are counted from, and how far the group reaches from there; zero of one that is all zeros."""
    if element.signed:
        return torch.zeros_like(groups[:, 0]), groups.abs().amax(-1)
    low, high = groups.amin(-1), groups.amax(-1)
    alike = low == high  # whose step is known by zero alone
    low, high = torch.where(alike, low.clamp(max=0), low), torch.where(alike, high.clamp(min=0), high)
    return low, high - low


def _stored(steps: Tensor, format: WeightFormat) -> Tensor:
    """As the format's scales."""
    assert format.scaling is not None
    dtype = SCALE_DTYPES[format.scaling.type]
    limits = torch.finfo(dtype)
    return steps.clamp(max=limits.max).to(dtype).clamp(min=limits.smallest_normal * limits.eps)


def _zeros(groups: Tensor, values: Tensor, steps: Tensor, format: WeightFormat) -> tuple[Tensor | None, Tensor | None]:
    """Zero points and by how many codes a group's values are raised, where all of its weights are above zero; None for
    signed integers."""
    element = format.element
    assert isinstance(element, Integer)
    if element.signed:
        return None, None
    place = -_extremes(groups.flatten(0, 1), element)[0].view(steps.shape) / steps
    room = element.high - values.amax(-1)
    shift = torch.minimum((-place).clamp(min=0).ceil(), room)
    zeros = ((place + shift) * zero_steps(element)).clamp(0, LARGEST).round()
    return zeros.to(torch.uint8), shift


def _grouped(weight: Tensor, format: WeightFormat) -> Tensor:
    """[neurons, groups, group]; the last group is filled up with a weight of its own, which is on its grid too."""
    neurons, inputs = weight.shape
    size = group_size(inputs, format)
    missing = math.ceil(inputs / size) * size - inputs
    return torch.cat([weight, weight[:, -1:].expand(-1, missing)], 1).view(neurons, -1, size)
