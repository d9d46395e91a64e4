"""Embeddings and linear layers on packed weights in plain torch: the specification of every kernel.

y = x · Wᵀ + bias, where x is [..., inputs] and W the packed [neurons, inputs] matrix.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..formats import BFP, Element, Integer, decode, parse_weight, quantize
from ..formats.bfp import encode as encode_bfp
from ..formats.tensors import scale_values
from ..formats.zero_points import zero_steps
from ..tiles import PackedMatrix, unpack, unpack_codes

INT8_ROWS = parse_weight("int8:row")
SPAN = 2048  # inputs, or a little more, whose products are summed before they join the total
SPAN_STEP = 64
LIMB_GROUP = 32  # inputs that share a unit where floats become integers


@dataclass(frozen=True, eq=False)
class IntegerRows:
    """Activations as integers int64 [rows, inputs], what 1 stands for in each group of inputs, float32 [rows, groups],
    and in a whole row, float32 [rows, 1]; `group` is 0 where only the row has a scale."""

    values: Tensor
    units: Tensor
    scales: Tensor
    group: int


def embedding(ids: Tensor, matrix: PackedMatrix) -> Tensor:
    """float32 [..., cols]: the rows `ids` of all weights, unpacked."""
    return unpack(matrix)[ids]


def linear(x: Tensor, matrix: PackedMatrix, bias: Tensor | None = None) -> Tensor:
    """The product in float64, of activations as they are and weights as `tiles.unpack` gives them."""
    y = x.to(torch.float64) @ unpack(matrix).to(torch.float64).T
    return y if bias is None else y + bias.to(torch.float64)


def linear_in_order(x: Tensor, matrix: PackedMatrix, bias: Tensor | None = None) -> Tensor:
    """The product in float32, one input after the other: sum = fma(weight, activation, sum), rounded once each time; at
    the end the bias. What `linear` gives in batch-invariant mode, to the bit, on every instruction set that has fused
    multiply-adds."""
    rows, weight = x.reshape(-1, matrix.cols).to(torch.float32), unpack(matrix)
    total = torch.zeros(len(rows), matrix.rows)
    for i in range(matrix.cols):
        total = fused_multiply_add(weight[:, i], rows[:, i, None], total)
    y = total.view(*x.shape[:-1], matrix.rows)
    return y if bias is None else y + bias.to(torch.float32)


def linear_integer(x: Tensor, matrix: PackedMatrix, rounding: BFP | None, bias: Tensor | None = None) -> Tensor:
    """Integer weights with activations rounded to integers, in float32, to the last bit.

    Each row of x becomes int8 with one float32 scale (the format int8:row) or, with `rounding`, block floating point.
    Weights are their codes, less zero points where there are some: then in the steps of a zero point, 2^(8-Q) of them
    from code to code (`formats.zero_points`), so that they too are integers.
    Products of integers are summed exactly over each segment of inputs, which share all their scales. Then, in float32
    with a rounding after every operation:
    segment after segment of a span: sum = fma(float(dot) / steps (* activation unit), weight scale, sum), rounded once;
    span after span: total += sum; at the end y = total (* row scale) (+ bias).
    Where a dot product has more than 24 bits, float(dot) is the nearest, ties to even.
    """
    return _linear(_integer_rows(x.reshape(-1, matrix.cols), rounding), matrix, bias).view(*x.shape[:-1], matrix.rows)


def linear_limbs(x: Tensor, matrix: PackedMatrix, bias: Tensor | None = None) -> Tensor:
    """Weights that are integers, or integers times a power of two under codes of 4 bits, with float activations, below
    2^96, in two int8 limbs or three: what `linear_f32_i8_int` makes of them.

    As `linear_integer`, with activations rounded to the nearest of 18 bits, of bf16 of 14, ties to even: 2^18 or 2^14
    units are the power of two above the largest of 32 and what it is rounded to, 2^-99 at the least.
    """
    return _linear(_limb_rows(x.reshape(-1, matrix.cols)), matrix, bias).view(*x.shape[:-1], matrix.rows)


def _linear(rows: IntegerRows, matrix: PackedMatrix, bias: Tensor | None) -> Tensor:
    weights, steps, scales = _integer_weights(matrix)
    segment, span = cut(matrix, rows.group)
    total = torch.zeros(len(rows.values), matrix.rows)
    for start in range(0, matrix.cols, span):
        partial = torch.zeros_like(total)
        for first in range(start, min(start + span, matrix.cols), segment):
            inputs = slice(first, min(first + segment, start + span))
            dots = (rows.values[:, None, inputs] * weights[None, :, inputs]).sum(-1)
            value = dots.to(torch.float32) / steps
            if rows.group:
                value = value * rows.units[:, first // rows.group, None]
            partial = fused_multiply_add(value, scales[:, first // (matrix.layout.group or matrix.cols)], partial)
        total = total + partial
    y = total * rows.scales
    return y if bias is None else y + bias.to(torch.float32)


def fused_multiply_add(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c of float32 tensors, rounded once to float32, nearest even.

    In float64 the product is exact and the sum is rounded. Where that lost something, the sum's last bit is made odd,
    on the side of what was lost: then rounding to float32, which has 29 bits fewer, sees neither a tie nor a number
    that is not there, and rounds as if it had seen all bits.
    """
    product = a.double() * b.double()
    c = c.double()
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)  # what the addition lost, exactly (Knuth's two-sum)
    even = total.view(torch.int64) % 2 == 0
    odd = torch.nextafter(total, torch.where(lost > 0, torch.inf, -torch.inf).to(total))
    return torch.where((lost != 0) & even, odd, total).to(torch.float32)


def cut(matrix: PackedMatrix, group: int) -> tuple[int, int]:
    """Inputs of a segment and of a span: a segment lies within a group of weights, one of activations (`group` inputs,
    0 for the whole row) and a span; a span is SPAN inputs, raised to whole segments and to SPAN_STEP."""
    weights = matrix.layout.group or matrix.cols
    own = SPAN if weights >= matrix.cols else weights if weights <= SPAN else math.gcd(weights, SPAN)
    segment = math.gcd(own, group) if group else own
    step = math.lcm(segment, SPAN_STEP)
    return segment, -(-SPAN // step) * step


def _integer_rows(x: Tensor, rounding: BFP | None) -> IntegerRows:
    if rounding is None:
        rows = quantize(x, INT8_ROWS)
        assert rows.scales is not None
        return IntegerRows(decode(rows.codes, INT8_ROWS.element).to(torch.int64), torch.empty(0), rows.scales, 0)
    blocks = encode_bfp(x, rounding)
    values = torch.where(blocks.sign, -blocks.magnitude, blocks.magnitude).to(torch.int64)
    power = blocks.exponent.to(torch.int32).clamp(min=1) - 15 - (rounding.mantissa - 1)
    units = torch.ldexp(torch.ones_like(power, dtype=torch.float32), power)
    return IntegerRows(values.flatten(1)[:, : x.shape[1]], units, torch.ones(len(x), 1), rounding.group)


def limb_bits(dtype: torch.dtype) -> int:
    """Bits of the largest of LIMB_GROUP floats that become integers."""
    return 14 if dtype == torch.bfloat16 else 18


def _limb_rows(x: Tensor) -> IntegerRows:
    bits = limb_bits(x.dtype)
    groups = pad(x.to(torch.float64), (0, -x.shape[1] % LIMB_GROUP)).reshape(len(x), -1, LIMB_GROUP)
    part, exponent = torch.frexp(groups.abs().amax(-1))
    exponent = (exponent + (torch.round(part * 2**bits) == 2**bits)).clamp(min=-99)
    units = torch.ldexp(torch.ones_like(part), exponent - bits)
    values = torch.round(groups / units[..., None]).to(torch.int64)
    return IntegerRows(values.flatten(1)[:, : x.shape[1]], units.to(torch.float32), torch.ones(len(x), 1), LIMB_GROUP)


def integer_steps(element: Element) -> int | None:
    """How many steps make 1, at least one, if all values are integers in such steps: those of integers themselves, and
    of 4-bit codes such as E2M1 and tables, where they fit int8. None where they are not."""
    if isinstance(element, Integer):
        return 1
    values = [element.decode(code) for code in range(2**element.bits)] if element.bits == 4 else [math.inf]
    for steps in (1, 2, 4, 8, 16, 32, 64, 128):
        if all(abs(value * steps) < 128 and (value * steps).is_integer() for value in values):
            return steps
    return None


def _integer_weights(matrix: PackedMatrix) -> tuple[Tensor, int, Tensor]:
    """Weights without their scale, int64 [neurons, inputs], zero where dropped, and how many make 1; scales, float32
    [neurons, groups]."""
    quantized, keep = unpack_codes(matrix)
    assert quantized.scales is not None
    element = matrix.format.element
    steps = integer_steps(element)
    if steps is None:
        raise ValueError(f"{element} does not stand for integers")
    values = (decode(quantized.codes, element).to(torch.float64) * steps).to(torch.int64)
    if quantized.zeros is not None:
        group, steps = matrix.layout.group or matrix.cols, zero_steps(element)
        values = values * steps - quantized.zeros.to(torch.int64).repeat_interleave(group, 1)[:, : matrix.cols]
    return values if keep is None else torch.where(keep, values, 0), steps, scale_values(quantized.scales)
