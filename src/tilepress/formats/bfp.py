"""Block floating point: groups of values that share one exponent.

BFP(g, m) cuts a tensor into groups of g values along one axis. Each group keeps one 5-bit exponent, the
largest FP16 exponent field among its values; each value keeps a sign and an m-bit magnitude, its FP16
significand shifted right by how far its own exponent lies below the shared one, and truncated. A stored value
stands for

    (-1)^sign * magnitude * 2^(max(exponent, 1) - 15 - (m - 1))

The max is FP16's own rule: field 0 (zero and subnormals) has the scale of field 1 and no hidden bit.

`bfp_reference` is the specification, one group of Python floats at a time; this module is the same arithmetic
on torch tensors, on any device, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from .bfp_format import BFP as BFP
from .bfp_format import EXPONENT_BITS
from .bfp_format import GROUPS as GROUPS
from .bfp_format import MAX_MANTISSA as MAX_MANTISSA

MAX_FIELD = 30  # field 31 is FP16's infinity and NaN, which are never stored
FP16_MAX = 65504.0
FP16_OVERFLOW = 65520.0  # the least magnitude that rounds to infinity: halfway to 65536, which FP16 lacks

_EXPONENT_BIAS = 15
_FRACTION_BITS = 10
_FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)

Nonfinite = Literal["error", "saturate"]


@dataclass(frozen=True, eq=False)
class BFPTensor:
    """A tensor in block floating point, one integer per value.

    The grouped axis stands last, cut in groups; what a ragged last group misses is sign 0 and magnitude 0.

    shape: of the tensor that was encoded.
    axis: the grouped axis of `shape`, counted from 0.
    sign: bool [..., groups, g].
    magnitude: int32 [..., groups, g], below 2^m.
    exponent: uint8 [..., groups], FP16 exponent fields, 0 to 30.
    overflowed: how many values did not fit FP16 and were saturated.
    """

    format: BFP
    shape: tuple[int, ...]
    axis: int
    sign: Tensor
    magnitude: Tensor
    exponent: Tensor
    overflowed: int = 0

    @property
    def bits(self) -> int:
        """Bits stored: sign and magnitude of the real values, one exponent per group."""
        values = torch.Size(self.shape).numel()
        return values * (1 + self.format.mantissa) + self.exponent.numel() * EXPONENT_BITS


@dataclass(frozen=True, eq=False)
class BitPlanes:
    """A tensor in block floating point, transposed to words of one bit of each value of a group.

    A group is 1 + m words of g bits: the signs, then the magnitudes from most to least significant bit. Bit i
    of a word belongs to value i, and its bytes are little-endian: value i is bit i % 8 of byte i // 8. Fewer
    mantissa bits are thus fewer words, and the words that remain do not change.

    planes: uint8 [..., groups, 1 + m, g / 8].
    format, shape, axis, exponent, overflowed: as in `BFPTensor`.
    """

    format: BFP
    shape: tuple[int, ...]
    axis: int
    planes: Tensor
    exponent: Tensor
    overflowed: int = 0


def encode(x: Tensor, format: BFP, axis: int = -1, nonfinite: Nonfinite = "error") -> BFPTensor:
    """Encode a float16, bfloat16 or float32 tensor, in groups along `axis`.

    Values are first rounded to FP16 (to nearest, ties to even); those that would round to infinity become
    ±65504 and are counted. Infinities and NaN are refused; with nonfinite="saturate" they become ±65504 and
    +0, and are counted too.
    """
    axis = _count_axis_from_zero(axis, x.ndim)
    half, overflowed = _to_half(x, nonfinite)
    bits = _group(half.view(torch.int16), axis, format.group).to(torch.int32)
    field = (bits >> _FRACTION_BITS) & 0x1F
    exponent = field.amax(-1)
    magnitude = _align(bits & 0x3FF, field, exponent, format.mantissa)
    return BFPTensor(format, tuple(x.shape), axis, bits < 0, magnitude, exponent.to(torch.uint8), overflowed)


def decode(t: BFPTensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values of `t` in its original shape: exact in float32, rounded in float16 and bfloat16."""
    _require_float(dtype)
    absolute = t.magnitude.to(torch.float32) * _unit(t.exponent, t.format.mantissa).unsqueeze(-1)
    values = torch.where(t.sign, -absolute, absolute)
    return _ungroup(values, t.shape, t.axis).to(dtype)


def rounded(x: Tensor, format: BFP) -> Tensor:
    """`decode(encode(x, format), dtype=x.dtype)` along the last axis, to the bit, without what lies between.

    Every result is an FP16 value with low bits cleared, so none is rounded again. A group that holds something not
    finite becomes NaN: nothing here waits for the device to tell.
    """
    _require_float(x.dtype)
    last = _count_axis_from_zero(-1, x.ndim)
    groups = _group(x.detach().to(torch.float32), last, format.group)
    absolute = groups.abs()
    largest = absolute.amax(-1, keepdim=True)
    unit = _unit(_field(_to_half_in_place(largest.clone())), format.mantissa)
    unit = torch.where(largest.isfinite(), unit, torch.nan)
    values = _to_half_in_place(absolute).mul_(1 / unit).trunc_().mul_(unit)
    return _ungroup(torch.copysign(values, groups), tuple(x.shape), last).to(x.dtype)


def _to_half_in_place(absolute: Tensor) -> Tensor:
    """Absolute values rounded to FP16 and saturated, in float32. Adding a power of two that has no place for more bits
    than FP16 keeps makes the addition do the rounding: many times faster than a cast there and back on some CPUs."""
    absolute.clamp_(max=FP16_MAX)
    anchor = absolute.view(torch.int32) & (0xFF << 23)
    anchor = anchor.clamp_(min=(127 - 14) << 23).add_(13 << 23).view(torch.float32)
    return absolute.add_(anchor).sub_(anchor)


def _field(half: Tensor) -> Tensor:
    """The FP16 exponent field of FP16 values in float32, int32."""
    return ((half.view(torch.int32) >> 23) - 127 + _EXPONENT_BIAS).clamp(0, MAX_FIELD)


def demote(t: BFPTensor, mantissa: int) -> BFPTensor:
    """Drop low magnitude bits: the same as having encoded with fewer, since both truncate."""
    if mantissa > t.format.mantissa:
        raise ValueError(f"cannot raise {t.format} to mantissa {mantissa}: those bits are gone; encode anew")
    format = replace(t.format, mantissa=mantissa)
    return replace(t, format=format, magnitude=t.magnitude >> (t.format.mantissa - mantissa))


def pack_planes(t: BFPTensor) -> BitPlanes:
    """Transpose to bit planes."""
    words = [_pack_bits(t.sign)]
    for place in reversed(range(t.format.mantissa)):
        words.append(_pack_bits((t.magnitude >> place) & 1))
    return BitPlanes(t.format, t.shape, t.axis, torch.stack(words, dim=-2), t.exponent, t.overflowed)


def unpack_planes(p: BitPlanes) -> BFPTensor:
    """Undo `pack_planes`; ValueError or TypeError when the planes cannot have come from it."""
    _check_planes(p)
    sign, *planes = _unpack_bits(p.planes).unbind(-2)
    magnitude = torch.zeros_like(sign, dtype=torch.int32)
    for plane in planes:
        magnitude = 2 * magnitude + plane
    _check_padding(sign | magnitude, p.shape[p.axis])
    return BFPTensor(p.format, p.shape, p.axis, sign.to(torch.bool), magnitude, p.exponent, p.overflowed)


def _to_half(x: Tensor, nonfinite: Nonfinite) -> tuple[Tensor, int]:
    """`x` rounded to FP16 with overflow saturated, and how many values overflowed."""
    _require_float(x.dtype)
    if nonfinite not in ("error", "saturate"):
        raise ValueError(f'nonfinite must be "error" or "saturate", got {nonfinite!r}')
    wide = x.detach().to(torch.float32)
    # "Not below" rather than "at or above": NaN is neither, and counts.
    overflowed = int((~(wide.abs() < FP16_OVERFLOW)).sum())
    if overflowed and nonfinite == "error":
        _refuse_nonfinite(wide)
    # Clamped before the cast, which would make infinities.
    return wide.nan_to_num(nan=0.0).clamp(-FP16_MAX, FP16_MAX).to(torch.float16), overflowed


def _refuse_nonfinite(x: Tensor) -> None:
    count = int((~x.isfinite()).sum())
    if count:
        raise ValueError(
            f"{count} of {x.numel()} values are infinite or NaN, which BFP cannot hold; "
            'repair the input, or pass nonfinite="saturate" to store ±65504 for infinities and 0 for NaN'
        )


def _align(fraction: Tensor, field: Tensor, exponent: Tensor, mantissa: int) -> Tensor:
    """Magnitudes int32 [..., g] of FP16 fractions and fields [..., g] under shared exponents [...]."""
    significand = fraction | ((field > 0).to(torch.int32) << _FRACTION_BITS)
    lag = exponent.clamp(min=1).unsqueeze(-1) - field.clamp(min=1)
    # Widened to the longest mantissa first, so that every format is one right shift, which is the floor.
    widest = significand << (MAX_MANTISSA - 1 - _FRACTION_BITS)
    # A shift by more than 31 places is undefined in int32; 31 leaves 0 of any magnitude already.
    return widest >> (lag + (MAX_MANTISSA - mantissa)).clamp(max=31)


def _unit(exponent: Tensor, mantissa: int) -> Tensor:
    """What magnitude 1 stands for, float32 shaped as `exponent`: 2^(max(exponent, 1) - 15 - (m - 1))."""
    power = exponent.to(torch.int32).clamp(min=1) - _EXPONENT_BIAS - (mantissa - 1)
    # Built from its bits: exp2 and ldexp need not be exact on every device.
    return ((power + 127) << 23).view(torch.float32)


def _grouped_shape(shape: tuple[int, ...], axis: int, group: int) -> tuple[int, ...]:
    """[..., groups, g] of a tensor of `shape` with `axis` moved last and cut in groups."""
    return (*shape[:axis], *shape[axis + 1 :], -(-shape[axis] // group), group)


def _group(x: Tensor, axis: int, group: int) -> Tensor:
    """Move `axis` last, pad it with zeros to whole groups and cut it: [..., groups, g]."""
    shape = _grouped_shape(tuple(x.shape), axis, group)
    missing = shape[-2] * group - x.shape[axis]
    return torch.nn.functional.pad(x.movedim(axis, -1), (0, missing)).reshape(shape)


def _ungroup(grouped: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
    """Undo `_group`, padding dropped."""
    return grouped.flatten(-2)[..., : shape[axis]].movedim(-1, axis).contiguous()


def _pack_bits(bits: Tensor) -> Tensor:
    """Bits [..., g] of any integer dtype to bytes uint8 [..., g / 8], first bit least significant."""
    eights = bits.to(torch.uint8).reshape(*bits.shape[:-1], bits.shape[-1] // 8, 8)
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return torch.sum(eights << places, dim=-1, dtype=torch.uint8)


def _unpack_bits(words: Tensor) -> Tensor:
    """Undo `_pack_bits`: bytes uint8 [..., g / 8] to bits uint8 [..., g]."""
    places = torch.arange(8, dtype=torch.uint8, device=words.device)
    return ((words.unsqueeze(-1) >> places) & 1).flatten(-2)


def _count_axis_from_zero(axis: int, ndim: int) -> int:
    if ndim == 0:
        raise ValueError("a 0-d tensor has no axis to group along; reshape it to [1]")
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis must be from {-ndim} to {ndim - 1} for a {ndim}-d tensor, got {axis}")
    return axis % ndim


def _require_float(dtype: torch.dtype) -> None:
    if dtype not in _FLOAT_DTYPES:
        raise TypeError(f"dtype must be float16, bfloat16 or float32, got {dtype}")


def _check_planes(p: BitPlanes) -> None:
    """Refuse planes whose tensors do not fit their format and shape."""
    if not 0 <= p.axis < len(p.shape):
        raise ValueError(f"axis must be from 0 to {len(p.shape) - 1} for shape {p.shape}, got {p.axis}")
    *groups, group = _grouped_shape(p.shape, p.axis, p.format.group)
    _require_bytes("planes", p.planes, (*groups, 1 + p.format.mantissa, group // 8))
    _require_bytes("exponent", p.exponent, tuple(groups))
    bad = int((p.exponent > MAX_FIELD).sum())
    if bad:
        raise ValueError(f"{bad} exponents lie above {MAX_FIELD}, FP16's largest; the data is damaged")


def _require_bytes(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    if x.dtype != torch.uint8:
        raise TypeError(f"{name} must be uint8, got {x.dtype}")
    if tuple(x.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(x.shape)}")


def _check_padding(codes: Tensor, length: int) -> None:
    """Refuse codes [..., groups, g] with bits beyond `length` values: sums over whole groups need zeros."""
    if bool(codes.flatten(-2)[..., length:].any()):
        raise ValueError("bits are set beyond the last value of a ragged group; the data is damaged")
