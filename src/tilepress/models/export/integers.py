"""Packed weights as integers times a scale, dropped ones included: what other tools' files are made of."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...formats import Integer, Quantized
from ...formats.zero_points import whole, zero_steps
from ...tiles import PackedMatrix, unpack_codes


@dataclass(frozen=True, eq=False)
class Integers:
    """weight = (codes - zeros) · scales. codes: int16 [neurons, inputs], of `element`. zeros: int16 [neurons, groups],
    None where all are 0. scales: as stored. group: inputs of a whole group, None for the row."""

    element: Integer
    codes: Tensor
    zeros: Tensor | None
    scales: Tensor
    group: int | None


def integers_of(matrix: PackedMatrix) -> Integers | None:
    """None where weights are no integers, or zero points lie between the codes."""
    element, scaling = matrix.format.element, matrix.format.scaling
    if not isinstance(element, Integer) or scaling is None:
        return None
    quantized, keep = unpack_codes(matrix)
    assert quantized.scales is not None
    if quantized.zeros is None:
        half = 1 << (element.bits - 1)
        signed = (quantized.codes.to(torch.int16) ^ half) - half  # a dropped weight has code 0, which is 0
        return Integers(element, signed, None, quantized.scales, scaling.group)
    if not whole(quantized.zeros, element):
        return None
    return _with_zeros(element, quantized, keep, scaling.group)


def per_input(per_group: Tensor, inputs: int, group: int | None) -> Tensor:
    """[neurons, groups] spread to [neurons, inputs]."""
    return per_group.repeat_interleave(group or inputs, 1)[:, :inputs]


def _with_zeros(element: Integer, quantized: Quantized, keep: Tensor | None, group: int | None) -> Integers:
    assert quantized.zeros is not None and quantized.scales is not None
    codes, zeros = quantized.codes.to(torch.int16), (quantized.zeros // zero_steps(element)).to(torch.int16)
    if keep is not None:
        codes = torch.where(keep, codes, per_input(zeros, codes.shape[1], group))
    return Integers(element, codes, zeros, quantized.scales, group)
