"""Float activations: weights and rows for tests, which variants take them, and how far results may be off."""

import torch
from tests.tiles.cases import matrix

from tilepress import kernels, tiles
from tilepress.formats import Integer
from tilepress.kernels import reference
from tilepress.kernels.linear import FLOAT_VARIANTS

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

EPS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}

SMALLEST = {torch.float32: 2.0**-149, torch.bfloat16: 2.0**-133, torch.float16: 2.0**-24}


def variants(packed):
    """Operations that have a kernel on the instruction set in force and take such weights."""
    usable = []
    for variant in FLOAT_VARIANTS:
        try:
            kernels.chosen(variant)
        except ValueError:
            continue
        takes = {
            "linear_f32_bf16_any_groups": groups_take,
            "linear_f32_i8_int": limbs_take,
            "linear_f32_f16_any": halves_take,
        }
        if takes.get(variant, lambda packed: True)(packed):
            usable.append(variant)
    return usable


def groups_take(packed):
    group, most_bits = packed.layout.group, 4 if packed.format.has_zero_point else 6
    return group and group < packed.cols and group % 32 == 0 and packed.layout.bits <= most_bits


def limbs_take(packed):
    element = packed.format.element
    operand_bits = 8 if isinstance(element, Integer) else 16
    return bool(reference.integer_steps(element) and packed.format.scaling and packed.operand_bits == operand_bits)


def halves_take(packed):
    """Formats that fp16 holds to all its bits, in whole 16-bit tiles, and matrices of which it holds products."""
    element, group, weight = packed.format.element, packed.layout.group, tiles.unpack(packed).abs()
    if packed.operand_bits != 16 or (group and group < packed.cols and group % 32) or not weight.isfinite().all():
        return False
    if element.name in ("fp16", "bf8"):
        return packed.format.scaling is None and bool(weight.max() >= 2**-5)
    if element.bits > 6 or isinstance(element, Integer):
        return element.name == "e4m3"
    values = torch.tensor([abs(element.decode(code)) for code in range(element.codes)])
    zero = element.bits < 6 or (values == 0).any()
    return bool(values[values > 0].min() >= values.max() * 2**-13 and zero)


def activations(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_within_bound(x, packed, bias=None, **options):
    rounds = "f16" in options.get("variant", "") and x.dtype == torch.float32
    limits = exact_and_bound(x, packed, bias, "bf16" if rounds else options.get("activations", "float"))
    assert_near(kernels.linear(x, packed, bias, **options), x.dtype, *limits)


def exact_and_bound(x, packed, bias=None, activations="float"):
    """(The exact product, how far from it a kernel may be.)"""
    exact = reference.linear(x, packed, bias)
    shift = 0 if bias is None else bias.double().abs() * 2.0**-22
    bound = kernels.error_bound(x, tiles.unpack(packed), activations) + shift
    return exact, bound + (exact.abs() + bound) * EPS[x.dtype] + SMALLEST[x.dtype]


def assert_near(y, dtype, exact, bound):
    assert y.dtype == dtype
    wrong = (y.double() - exact).abs() > bound
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.numel()}: {(y.double() - exact)[wrong][:3]} {bound[wrong][:3]}"
    )


def pack(format, rows, cols, density, seed=0, **options):
    weight = matrix(rows, cols, 1.0 if density is None else density, seed)
    return tiles.pack(weight, format, sparse=density is not None, **options)
