"""Linear layers on packed weights, native."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import _native
from ..formats import BFP, FormatError, Integer, parse
from ..tiles import PackedMatrix, unpack
from ..tiles.native import REAL_NAMES, raw_bytes
from ..tiles.packing import thread_count
from .dispatch import chosen
from .reference import limb_bits
from .tuning import load as load_tuning

INTEGER_VARIANTS = (
    "linear_f32_i8_int",
    "linear_f32_i8_int_tiles",
    "linear_f32_bf16_any_groups",
    "matmul_f32_i8_i8",
    "matmul_f32_bf16_bf16_groups",
)
FLOAT_VARIANTS = (
    "linear_f32_f32_any",
    "linear_f32_i8_int",
    "linear_f32_f16_any",
    "linear_f32_bf16_any",
    "linear_f32_bf16_any_tiles",
    "linear_f32_bf16_any_groups",
    "matmul_f32_f32_f32",
    "matmul_f32_bf16_bf16",
)

FLOAT, BF16 = -1, -2  # instead of a mantissa

READS_TENSORS = _native.use_tensor_type(Tensor)  # false where torch hands out no functions to read tensors with
_NO_BIAS = np.empty(0, np.float32)


def linear(
    x: Tensor,
    matrix: PackedMatrix,
    bias: Tensor | None = None,
    *,
    activations: str = "float",
    variant: str = "",
    threads: int | None = None,
) -> Tensor:
    """x [..., inputs] · Wᵀ (+ bias): [..., neurons] in x's type, float32, bfloat16 or float16.

    The gradient by x goes through the unpacked weights, y' · W; the rounding of x to int8 or block floating point
    counts as none (straight through). The bias has its gradient; packed weights have none.

    Args:
        bias: [neurons].
        activations: "float" takes x as it is: float32 is computed with the accuracy of float32 on every instruction
            set, bfloat16 and float16 with that of bfloat16. "bf16" lets float32 be rounded to bfloat16 where that is
            faster. Both are within `error_bound` of `reference.linear`. "int8" rounds x to int8 with one scale per
            row, "bfp:gN:mN" to block floating point; both need integer weights, and give to the bit what
            `reference.linear_integer` gives, on every instruction set and with any number of threads.
        variant: the operation to use, one of FLOAT_VARIANTS or INTEGER_VARIANTS; chosen by batch and machine if empty.
        threads: as many as torch uses if not given.
    """
    load_tuning()
    workers = torch.get_num_threads() if threads is None else thread_count(threads)
    options = (matrix, native_rounding(activations), variant, workers)
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        y: Tensor = _Linear.apply(x, bias, *options)  # type: ignore[no-untyped-call, unused-ignore]
        return y
    return _linear(x, bias, *options)


def _linear(
    x: Tensor, bias: Tensor | None, matrix: PackedMatrix, rounding: tuple[int, int], variant: str, workers: int
) -> Tensor:
    if not variant:
        result = matrix.native.linear(x, bias, *rounding, workers)
        if result is not None:
            return result
    return _linear_of_any(x, matrix, bias, rounding, variant, workers)


def _linear_of_any(
    x: Tensor,
    matrix: PackedMatrix,
    bias: Tensor | None,
    rounding: tuple[int, int],
    variant: str,
    threads: int,
) -> Tensor:
    """The same for what native code does not take as it is: a variant that was named, subclasses of tensors, tensors
    that are not contiguous or have the negative bit set, a torch without functions to read tensors with; and errors."""
    shape = x.shape
    _check(x, shape, matrix, bias, rounding[1] >= 0)
    y = torch.empty(*shape[:-1], matrix.rows, dtype=x.dtype)
    if x.numel():
        shift = _NO_BIAS if bias is None else bias.detach().to(torch.float32).contiguous().resolve_neg().numpy()
        arrays = (raw_bytes(x.detach().contiguous()), REAL_NAMES[x.dtype], shift, raw_bytes(y))
        matrix.native.linear_into(*arrays, *rounding, variant, threads)
    return y


def input_gradient(gradient: Tensor, matrix: PackedMatrix) -> Tensor:
    """By the inputs [..., inputs], of the gradient by the outputs [..., neurons]."""
    return (gradient.to(torch.float32) @ unpack(matrix, torch.float32)).to(gradient.dtype)


def bias_gradient(gradient: Tensor) -> Tensor:
    """By the bias [neurons], of the gradient by the outputs [..., neurons]."""
    return gradient.to(torch.float32).reshape(-1, gradient.shape[-1]).sum(0)


class _Linear(torch.autograd.Function):
    """`linear` with a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, matrix: PackedMatrix, *options: Any) -> Tensor:
        ctx.matrix, ctx.bias_type = matrix, None if bias is None else bias.dtype
        return _linear(x, bias, matrix, *options)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override, unused-ignore]
        by_x = input_gradient(gradient, ctx.matrix) if ctx.needs_input_grad[0] else None
        by_bias = bias_gradient(gradient).to(ctx.bias_type) if ctx.needs_input_grad[1] else None
        return by_x, by_bias, None, None, None, None


def linear_kernel(
    matrix: PackedMatrix, batch: int = 1, dtype: torch.dtype = torch.float32, *, activations: str = "float"
) -> str:
    """The kernel that `linear` would run now for `batch` rows of type `dtype`, as operation/instruction set."""
    load_tuning()
    group, mantissa = native_rounding(activations)
    if mantissa < 0:
        operation = matrix.native.float_variant(batch, REAL_NAMES[torch.bfloat16 if mantissa == BF16 else dtype])
    else:
        operation = matrix.native.integer_variant(batch, group, mantissa)
    return f"{operation}/{chosen(operation)}"


def error_bound(x: Tensor, weight: Tensor, activations: str = "float") -> Tensor:
    """How far `linear(x, matrix)` may be from x · Wᵀ of the unpacked `weight`, before its result is rounded to x's
    type: float64 [..., neurons].

    Each of the sum's n additions may round, and a weight's product with its scale: (n + 1) · 2^-23. Products below
    float32's smallest normal number may be lost. That is all for float32, but for integers, see below.

    With other types, a weight may be rounded to bf16 twice, as a value of its table and as a product with its scale:
    2 · 2^-8. Of an activation 16 bits count, 8 of float32 with activations="bf16": 2^-16 or 2^-8.

    Or, with integer weights and with 4-bit codes that stand for integers, such as E2M1, activations are rounded to 18
    bits of the largest of their 32, bf16 ones to 14, or to 2^-118 and 2^-114.

    Or, with weights that fp16 holds, both are rounded to fp16 and so are sums over 32 inputs, eleven times at most:
    11 · 2^-11. Of products, what is below 2^-17 of the smallest step of a weight, or of fp16 and bf8 below 2^-30 of the
    largest of all weights, each times the largest activation of 32, may be lost.
    Activations of 2^96 and more may overflow where weights would not have let them.
    """
    inputs, sizes = x.shape[-1], x.to(torch.float64).abs()
    magnitudes = weight.to(torch.float64).abs().T
    groups = pad(sizes, (0, -inputs % 32)).reshape(*x.shape[:-1], -1, 32)
    largest = groups.amax(-1).repeat_interleave(32, -1)[..., :inputs]
    precision = torch.bfloat16 if activations == "bf16" else x.dtype
    limbs = (2.0 ** (1 - limb_bits(precision)) * largest + 2.0**-114) @ magnitudes
    sums: Tensor = (inputs + 1) * 2.0**-23 * (sizes @ magnitudes) + inputs * 2.0**-126
    if precision == torch.float32:
        return sums + limbs
    rounded = (2.0**-7 + (2.0**-8 if activations == "bf16" else 2.0**-16)) * (sizes @ magnitudes)
    lost = 2.0**-30 * magnitudes.max() * largest.sum(-1, keepdim=True)
    return sums + rounded + lost + limbs


@lru_cache(maxsize=64)
def native_rounding(activations: str) -> tuple[int, int]:
    """What native code calls them: group and mantissa of block floating point; 0, 0 for int8 with one scale per row; 0
    and FLOAT or BF16 for floats."""
    named = {"float": (0, FLOAT), "bf16": (0, BF16), "int8": (0, 0)}
    if activations in named:
        return named[activations]
    format = parse(activations)
    if not isinstance(format, BFP):
        raise FormatError(f"activations are float, bf16, int8 or bfp:gN:mN, not {activations}")
    return format.group, format.mantissa


def _check(x: Tensor, shape: torch.Size, matrix: PackedMatrix, bias: Tensor | None, integers: bool) -> None:
    if integers and (matrix.operand_bits != 8 or not isinstance(matrix.format.element, Integer)):
        raise ValueError(f"integer activations want integer weights in 8-bit tiles, not {matrix.format}")
    if x.dtype not in REAL_NAMES or not x.is_cpu:
        raise TypeError(f"activations are float32, bfloat16 or float16 on the CPU, not {x.dtype} on {x.device}")
    if not shape or shape[-1] != matrix.cols:
        raise ValueError(f"activations are [..., {matrix.cols}], not {list(shape)}")
    if bias is not None and tuple(bias.shape) != (matrix.rows,):
        raise ValueError(f"the bias is [{matrix.rows}], not {list(bias.shape)}")
    if bias is not None and not (bias.is_cpu and bias.is_floating_point()):
        raise TypeError(f"the bias is of floats on the CPU, not {bias.dtype} on {bias.device}")
