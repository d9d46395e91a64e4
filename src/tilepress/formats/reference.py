"""Group quantisation of one row, in plain scalar code: the specification of `tensors.py` and of the native packer.

All arithmetic is float32, one rounding an operation, as any processor does it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .floats import BF16, FP16, Float
from .weight import ScaleType, WeightFormat
from .zero_points import LARGEST, zero_steps

F32 = np.float32
_STORED: dict[ScaleType, Float] = {"bf16": BF16, "fp16": FP16}
_SMALLEST: dict[ScaleType, float] = {"bf16": 2.0**-133, "fp16": 2.0**-24, "fp32": 2.0**-149}


@dataclass(frozen=True)
class Row:
    """Codes of one neuron's weights, and a scale and a stored zero point for each group (empty where it has none)."""

    codes: list[int]
    scales: list[float]
    zeros: list[int]


def quantize_row(weights: Sequence[float], format: WeightFormat, *, sparse: bool = False) -> Row:
    """Round-to-nearest quantisation with the scale of each group set by its extremes.

    sparse: zero must stay exactly zero.
    """
    values = [F32(w) for w in weights]
    if not all(map(math.isfinite, values)):
        raise ValueError("weights must be finite")
    if format.scaling is None:
        return Row([format.element.encode(float(v)) for v in values], [], [])
    row = Row([], [], [])
    step = format.scaling.group_inputs(len(values))
    for group in range(format.scaling.groups(len(values))):
        _quantize_group(values[group * step : (group + 1) * step], format, row, sparse)
    return row


def _quantize_group(values: list[np.float32], format: WeightFormat, row: Row, sparse: bool) -> None:
    with np.errstate(over="ignore", under="ignore"):
        if format.has_zero_point:
            _quantize_unsigned(values, format, row, sparse)
        else:
            _quantize_symmetric(values, format, row)


def _quantize_symmetric(values: list[np.float32], format: WeightFormat, row: Row) -> None:
    extent = max([abs(v) for v in values], default=F32(0))
    scale = scale_of(extent, format)
    row.scales.append(float(scale))
    row.codes.extend(format.element.encode(float(v / scale)) for v in values)


def _quantize_unsigned(values: list[np.float32], format: WeightFormat, row: Row, sparse: bool) -> None:
    """The range always holds zero, so that a zero point lies among the codes."""
    low, high = min([*values, F32(0)]), max([*values, F32(0)])
    scale = scale_of(high - low, format)
    stored = zero_of(-low / scale, format, sparse)
    zero = F32(stored / zero_steps(format.element))
    row.scales.append(float(scale))
    row.zeros.append(stored)
    row.codes.extend(format.element.encode(float(v / scale + zero)) for v in values)


def zero_of(place: np.float32, format: WeightFormat, sparse: bool) -> int:
    """The stored zero point nearest to `place`, where zero lies between the codes; a code if `sparse`."""
    steps = zero_steps(format.element)
    if sparse:
        return round(min(float(place), format.element.max)) * steps
    return round(min(float(place) * steps, LARGEST))


def scale_of(extent: np.float32, format: WeightFormat) -> np.float32:
    """The scale of a group whose values span `extent` (largest magnitude, or high - low beside a zero point).

    A float scale is extent / element.max rounded to its type, at least the smallest positive number of that type
    and at most the largest. E8M0 is OCP MX's 2^(floor(log2 extent) - emax). A group of zeros has scale 1.
    """
    assert format.scaling is not None
    extent = min(extent, np.finfo(F32).max)
    if extent == 0:
        return F32(1)
    if format.scaling.type == "e8m0":
        exponent = math.frexp(float(extent))[1] - 1 - format.element.emax
        return F32(math.ldexp(1.0, min(max(exponent, -127), 127)))
    quotient = min(extent / F32(format.element.max), np.finfo(F32).max)
    if format.scaling.type == "fp32":
        return max(quotient, F32(_SMALLEST["fp32"]))
    stored = _STORED[format.scaling.type]
    return max(F32(stored.decode(stored.encode(float(quotient)))), F32(_SMALLEST[format.scaling.type]))
