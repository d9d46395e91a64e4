"""Linear layers on packed weights in plain torch: the specification of every kernel.

y = x · Wᵀ + bias, where x is [..., inputs] and W the packed [neurons, inputs] matrix.
"""

import torch
from torch import Tensor

from ..formats import Integer, decode, parse_weight, quantize
from ..formats.tensors import scale_values
from ..tiles import PackedMatrix, unpack_codes

INT8_ROWS = parse_weight("int8:row")


def linear_int8(x: Tensor, matrix: PackedMatrix, bias: Tensor | None = None) -> Tensor:
    """Integer weights with int8 activations, in float32, to the last bit.

    Each row of x becomes the format int8:row: integers and one float32 scale. Products of integers are summed exactly
    over each group of inputs. Then, in float32 with a rounding after every operation and group after group:
    sum += float(dot) * weight scale; at the end y = sum * activation scale (+ bias).
    """
    if not isinstance(matrix.format.element, Integer):
        raise ValueError(f"int8 activations want integer weights, not {matrix.format}")
    rows = quantize(x.reshape(-1, matrix.cols), INT8_ROWS)
    assert rows.scales is not None
    activations = decode(rows.codes, INT8_ROWS.element).to(torch.int64)
    weights, scales = _integers(matrix)
    total = torch.zeros(len(activations), matrix.rows)
    group = matrix.layout.group or matrix.cols
    for index in range(matrix.layout.groups):
        inputs = slice(index * group, (index + 1) * group)
        dots = (activations[:, None, inputs] * weights[None, :, inputs]).sum(-1)
        total = total + dots.to(torch.float32) * scales[:, index]
    y = total * rows.scales
    return (y if bias is None else y + bias.to(torch.float32)).view(*x.shape[:-1], matrix.rows)


def _integers(matrix: PackedMatrix) -> tuple[Tensor, Tensor]:
    """Weights without their scale, int64 [neurons, inputs], zero where dropped; scales, float32 [neurons, groups]."""
    quantized, keep = unpack_codes(matrix)
    assert quantized.scales is not None
    values = decode(quantized.codes, matrix.format.element).to(torch.int64)
    if quantized.zeros is not None:
        group = matrix.layout.group or matrix.cols
        values = values - quantized.zeros.to(torch.int64).repeat_interleave(group, 1)[:, : matrix.cols]
    return values if keep is None else torch.where(keep, values, 0), scale_values(quantized.scales)
