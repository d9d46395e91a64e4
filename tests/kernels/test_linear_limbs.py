"""Float activations in int8 limbs, with integer weights: to the bit what the reference gives."""

from functools import cache

import pytest
import torch
from tests.kernels.float_cases import (
    DTYPES,
    activations,
    assert_within_bound,
    pack,
)
from tests.pairs import in_turn

from tilepress import kernels, tiles
from tilepress.formats import Scaling, Table, WeightFormat
from tilepress.kernels import reference


def integer_table(step, scale):
    """A table of multiples of half of `step`, of which the first is not zero."""
    values = [step * value for value in (-3, 3, 1, -1, 0, 2, -2, 3.5)]
    return WeightFormat(Table("lut4:steps", 4, tuple(values)), Scaling(32, scale))


FORMATS = [
    *("int4:g32", "int8:row", "uint4:g32", "int5:g48", "uint8:g80:bf16", "int2:g16", "mxfp4", "e2m1:g48:fp16"),
    *("e2m1:row", integer_table(1, "bf16"), integer_table(0.25, "e8m0"), integer_table(32, "fp32")),
]


@cache
def case(format, density, dtype):
    """Packed weights, a bias, and [(activations, small beside large, and what to expect)]: the same for every
    instruction set."""
    packed, bias = pack(format, 37, 150, density), activations(37, seed=1)
    rows = [activations(n, 150, dtype=dtype) * torch.logspace(-6, 3, 150).to(dtype) for n in (1, 3, 6)]
    return packed, bias, [(x, reference.linear_limbs(x, packed, bias).to(dtype)) for x in rows]


@pytest.mark.parametrize(("format", "dtype", "density"), in_turn(FORMATS, DTYPES, [None, 0.5, 0.02]), ids=str)
def test_limbs_are_the_reference_to_the_bit(format, density, dtype, isa):
    packed, bias, rows = case(format, density, dtype)
    for x, expected in rows:
        assert torch.equal(kernels.linear(x, packed, bias, variant="linear_f32_i8_int"), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2.0**95, 1 - 2.0**-24, 1 - 2.0**-19, 1 - 2.0**-18, 2.0**-101, 2.0**-130, 0.0])
def test_limbs_of_the_largest_and_smallest_floats(size, dtype, isa):
    """Beside ones that are just rounded to the next power of two, and just not."""
    packed = pack("int4:g32:fp32", 16, 96, None)
    x = torch.full((2, 96), size).to(dtype) * torch.tensor([[1.0], [-1.0]]).to(dtype)
    x[:, 40:] /= 3
    x[:, ::5] *= 2.0**-9
    y = kernels.linear(x, packed, variant="linear_f32_i8_int")
    assert torch.equal(y, reference.linear_limbs(x, packed).to(dtype))
    assert_within_bound(x, packed, variant="linear_f32_i8_int")


def test_limbs_need_integers():
    for packed in (
        tiles.pack(torch.ones(16, 64), "nf4"),
        tiles.pack(torch.ones(16, 64), "mxfp4", operand_bits=8),
        tiles.pack(torch.ones(16, 64), "int4:g32", operand_bits=16),
    ):
        with pytest.raises(ValueError, match="linear_f32_i8_int wants integer weights in 8-bit tiles"):
            kernels.linear(torch.ones(1, 64), packed, variant="linear_f32_i8_int")
