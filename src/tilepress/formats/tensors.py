"""Encode, decode, quantise and dequantise whole tensors, on any torch device, bit-equal to the scalar reference."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .element import Element
from .floats import Float
from .integers import Integer
from .nearest import float32_thresholds
from .tables import Table
from .weight import ScaleType, WeightFormat
from .zero_points import zero_values, zeros_of

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
E8M0_ONE = 127
SCALE_DTYPES: dict[ScaleType, torch.dtype] = {
    "e8m0": torch.uint8,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}


@dataclass(frozen=True, eq=False)
class Quantized:
    """A weight matrix [neurons, inputs] as numbers of a format.

    `codes`: uint8 (int16 bit patterns for bf16 and fp16) [neurons, inputs]. `scales`: [neurons, groups] in the
    format's scale type, E8M0 as its uint8 code. `zeros`: uint8 [neurons, groups], see `zero_points`. None where the
    format has none.
    """

    codes: Tensor
    scales: Tensor | None = None
    zeros: Tensor | None = None


def encode(x: Tensor, element: Element) -> Tensor:
    """Codes of the values `x`, any shape: uint8, or int16 bit patterns for 16-bit formats."""
    x = x.to(torch.float32)
    if element.bits == 16:
        return _encode_half(x, element)
    if not isinstance(element, Float) or element.specials == "none":
        _refuse_nan(x, element)
    if isinstance(element, Integer):
        return x.clamp(element.low, element.high).round().to(torch.int16).bitwise_and(element.codes - 1).to(torch.uint8)
    return _encode_float(x, element) if isinstance(element, Float) else _encode_table(x, element)


def decode(codes: Tensor, element: Element) -> Tensor:
    """float32 values of `codes`, any shape."""
    if element.bits == 16:
        return codes.view(_HALF[element.name]).to(torch.float32)
    if codes.numel():
        for code in map(int, codes.aminmax()):
            element.check_code(code)
    return torch.from_numpy(decode_table(element)).to(codes.device)[codes.to(torch.int32)]


def quantize(weight: Tensor, format: WeightFormat, *, sparse: bool = False) -> Quantized:
    """Round-to-nearest quantisation of a finite [neurons, inputs] matrix; each group's extremes set its scale.

    sparse: zero must stay exactly zero, since weights that are zero will be dropped.
    """
    weight = check_weight(weight).detach().to(torch.float32)
    if not bool(torch.isfinite(weight).all()):
        raise ValueError(f"weights must be finite: {int((~torch.isfinite(weight)).sum())} are not")
    if format.scaling is None:
        return Quantized(encode(weight, format.element))
    grouped = _group(weight, format)
    if format.has_zero_point:
        return _quantize_unsigned(weight, grouped, format, sparse)
    scales = scales_of(grouped.abs().amax(-1), format)
    codes = encode(weight / _per_weight(scale_values(scales), weight, format), format.element)
    return Quantized(codes, scales)


def dequantize(quantized: Quantized, format: WeightFormat) -> Tensor:
    """float32 [neurons, inputs]: (decode(code) - zero) * scale."""
    values = decode(quantized.codes, format.element)
    if quantized.zeros is not None:
        values = values - _per_weight(zero_values(quantized.zeros, format.element), values, format)
    if quantized.scales is not None:
        values = values * _per_weight(scale_values(quantized.scales), values, format)
    return values


def scale_values(scales: Tensor) -> Tensor:
    """float32 values of stored scales; uint8 is E8M0, whose code 255 is NaN."""
    if scales.dtype != torch.uint8:
        return scales.to(torch.float32)
    exponents = scales.to(torch.int32) - E8M0_ONE
    return torch.where(
        scales == 255, torch.nan, torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents)
    )


def scales_of(extents: Tensor, format: WeightFormat) -> Tensor:
    """Stored scales of groups that span `extents` (float32, finite or +inf); see `reference.scale_of`."""
    assert format.scaling is not None
    type, dtype = format.scaling.type, SCALE_DTYPES[format.scaling.type]
    extents = extents.clamp(max=torch.finfo(torch.float32).max)
    if type == "e8m0":
        exponents = torch.frexp(extents)[1] - 1 - format.element.emax
        exponents = torch.where(extents == 0, 0, exponents.clamp(-127, 127))
        return (exponents + E8M0_ONE).to(torch.uint8)
    limits = torch.finfo(dtype)
    # By a tensor, since CUDA takes division by a number for multiplication with its reciprocal.
    largest = torch.tensor(format.element.max, dtype=torch.float32, device=extents.device)
    quotients = (extents / largest).clamp(max=limits.max).to(dtype)
    quotients = quotients.clamp(min=limits.smallest_normal * limits.eps)
    return torch.where(extents == 0, torch.ones_like(quotients), quotients)


def sqnr(weight: Tensor, approximation: Tensor) -> float:
    """Signal-to-quantisation-noise ratio in decibels; infinite where nothing was lost."""
    signal = float(weight.double().square().sum())
    noise = float((weight.double() - approximation.double()).square().sum())
    if not signal or not noise:
        return math.inf if not noise else -math.inf
    return 10 * math.log10(signal / noise)


def check_weight(weight: Tensor) -> Tensor:
    """`weight` if it is a floating-point matrix; a clear error if not."""
    if not isinstance(weight, Tensor):
        raise TypeError(f"weights are a torch tensor, not {type(weight).__name__}")
    if weight.ndim != 2:
        raise ValueError(f"a weight matrix is [neurons, inputs], not {list(weight.shape)}")
    if not weight.numel():
        raise ValueError(f"an empty matrix has no format: {list(weight.shape)}")
    if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"weights are float32, bfloat16 or float16, not {weight.dtype}")
    return weight


@cache
def decode_table(element: Element) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """float32 value of each code of a format of at most eight bits."""
    return np.array([element.decode(code) for code in range(element.codes)], np.float32)


@cache
def encode_table(element: "Float | Table") -> tuple[np.ndarray, np.ndarray]:
    """Thresholds (float32) and the code of each rank (uint8): the code of x is codes[count of thresholds ≤ x].

    For a float, x is a magnitude and the code lacks its sign.
    """
    if isinstance(element, Float):
        values, codes = element.magnitudes, tuple(range(len(element.magnitudes)))
    else:
        values, codes = zip(*element.ranked, strict=True)
    return np.array(float32_thresholds(values), np.float32), np.array(codes, np.uint8)


def _quantize_unsigned(weight: Tensor, grouped: Tensor, format: WeightFormat, sparse: bool) -> Quantized:
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = scales_of(high - low, format)
    values = scale_values(scales)
    zeros = zeros_of(-low / values, format.element, sparse=sparse)
    ratio = weight / _per_weight(values, weight, format)
    codes = encode(ratio + _per_weight(zero_values(zeros, format.element), weight, format), format.element)
    return Quantized(codes, scales, zeros)


def _group(weight: Tensor, format: WeightFormat) -> Tensor:
    """[neurons, groups, group], the last group filled up with zeros, which never widen a range."""
    assert format.scaling is not None
    neurons, inputs = weight.shape
    groups, size = format.scaling.groups(inputs), format.scaling.group_inputs(inputs)
    return torch.nn.functional.pad(weight, (0, groups * size - inputs)).view(neurons, groups, size)


def _per_weight(per_group: Tensor, weight: Tensor, format: WeightFormat) -> Tensor:
    """[neurons, groups] spread to [neurons, inputs]."""
    assert format.scaling is not None
    inputs = weight.shape[1]
    return per_group.repeat_interleave(format.scaling.group_inputs(inputs), dim=1)[:, :inputs]


def _encode_half(x: Tensor, element: Element) -> Tensor:
    codes = x.clamp(-element.max, element.max).to(_HALF[element.name]).view(torch.int16)
    sign = torch.where(torch.signbit(x), torch.iinfo(torch.int16).min, 0).to(torch.int16)
    return torch.where(torch.isnan(x), sign | element.encode(math.nan), codes)


def _encode_float(x: Tensor, element: Float) -> Tensor:
    thresholds, _ = encode_table(element)
    ranks = torch.searchsorted(torch.from_numpy(thresholds).to(x.device), x.abs().contiguous(), right=True)
    if element.specials != "none":
        nan_code = element.encode(float("nan"))
        ranks = torch.where(torch.isnan(x), nan_code, ranks)
    return (ranks + torch.signbit(x) * (element.codes // 2)).to(torch.uint8)


def _encode_table(x: Tensor, element: Element) -> Tensor:
    assert isinstance(element, Table)
    thresholds, codes = (torch.from_numpy(array).to(x.device) for array in encode_table(element))
    return codes[torch.searchsorted(thresholds, x.contiguous(), right=True)]


def _refuse_nan(x: Tensor, element: Element) -> None:
    if bool(torch.isnan(x).any()):
        raise ValueError(f"{element.name} has no NaN to encode")
