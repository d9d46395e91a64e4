"""From another tool's codes, scales and zero points to ours, where a format of ours has that grid."""

import torch
from torch import Tensor

from ...formats import SIGNED, UNSIGNED, Element, Quantized, Scaling, WeightFormat
from ...formats.tensors import SCALE_DTYPES
from ...formats.weight import GROUP_STEP, ScaleType
from ...formats.zero_points import zero_steps
from .layer import Held, SourceWeight, Unheld

SCALE_TYPES: dict[torch.dtype, ScaleType] = {dtype: name for name, dtype in SCALE_DTYPES.items() if name != "e8m0"}
FEWEST_BITS = SIGNED[0].bits


def group_of(group: int, inputs: int) -> int | None:
    """As `Scaling` has it: None where a group is the whole row, which -1 says too."""
    return None if group in (-1, 0) or group >= inputs else group


def is_a_group(group: int | None) -> bool:
    """Whether our formats have groups of this size."""
    return group is None or group % GROUP_STEP == 0


def group_count(inputs: int, group: int | None) -> int:
    return 1 if group is None else -(-inputs // group)


def scaled(element: Element, codes: Tensor, scales: Tensor, group: int | None) -> Held:
    """codes [neurons, inputs], scales [neurons, groups] of one of our scale types; of groups, in the shortest that has
    them."""
    scales = scales if group is None else fewest_bits(scales)
    format = WeightFormat(element, Scaling(group, SCALE_TYPES[scales.dtype]))
    return Held(format, Quantized(codes.contiguous(), scales.contiguous()))


def integers(codes: Tensor, zeros: Tensor | None, scales: Tensor, bits: int, group: int | None) -> Held:
    """(code - zero) * scale, unsigned codes of `bits` bits and zero points that are codes [neurons, groups]; None is
    half the range. Signed where all zero points are that: it needs no zero points and computes faster."""
    middle = 1 << (bits - 1)
    if zeros is None or bool((zeros == middle).all()):
        return scaled(SIGNED[bits - FEWEST_BITS], codes ^ middle, scales, group)
    element = UNSIGNED[bits - FEWEST_BITS]
    held = scaled(element, codes, scales, group)
    points = (zeros * zero_steps(element)).to(torch.uint8).contiguous()
    return Held(held.format, Quantized(held.quantized.codes, held.quantized.scales, points))


def integers_of_groups(
    codes: Tensor, zeros: Tensor | None, scales: Tensor, bits: int, group: int | None, owners: Tensor | None
) -> SourceWeight:
    """Like `integers`, where input i belongs to group owners[i], None for groups in order."""
    inputs = codes.shape[1]
    if is_a_group(group):
        if owners is None:
            return integers(codes, zeros, scales, bits, group)
        size = inputs if group is None else group
        firsts = owners[::size]
        if bool((owners == firsts.repeat_interleave(size)[:inputs]).all()):
            points = None if zeros is None else zeros[:, firsts]
            return integers(codes, points, scales[:, firsts], bits, group)
        why = "its inputs are grouped in another order than they come in (desc_act)"
    else:
        why = f"its groups of {group} inputs are no multiple of {GROUP_STEP}"
    weight = _by_owner(codes, zeros, scales, bits, owners if owners is not None else _in_order(inputs, group))
    return Unheld(weight, why, nearest_integers(bits))


def nearest_integers(bits: int) -> WeightFormat:
    """What weights on a grid of integers are rounded to where it cannot be held."""
    if bits > 4:
        return WeightFormat(SIGNED[8 - FEWEST_BITS], Scaling(32, "bf16"))
    return WeightFormat(UNSIGNED[bits - FEWEST_BITS], Scaling(32, "fp16"))


def _in_order(inputs: int, group: int | None) -> Tensor:
    return torch.arange(inputs) // (group or inputs)


def _by_owner(codes: Tensor, zeros: Tensor | None, scales: Tensor, bits: int, owners: Tensor) -> Tensor:
    middle = 1 << (bits - 1)
    points = middle if zeros is None else zeros[:, owners].to(torch.float32)
    return (codes.to(torch.float32) - points) * scales[:, owners].to(torch.float32)


def fewest_bits(scales: Tensor) -> Tensor:
    """Scales, in 16 bits if they are float32 and one of the types has each of them."""
    if scales.dtype != torch.float32:
        return scales
    for type in (torch.bfloat16, torch.float16):
        short = scales.to(type)
        if bool((short.to(torch.float32) == scales).all()):
            return short
    return scales


def of_blocks(scales: Tensor, rows: int, height: int) -> Tensor:
    """[neurons, groups] of scales of blocks `height` rows high, [blocks of rows, groups]."""
    return scales.repeat_interleave(min(height, rows), 0)[:rows].contiguous()
