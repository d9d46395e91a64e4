"""Weights that fp16 holds, in arithmetic of fp16: nothing overflows, nothing that counts is lost."""

import pytest
import torch
from tests.kernels.float_cases import (
    assert_within_bound,
    pack,
    variants,
)

from tilepress import kernels, tiles
from tilepress.formats import Quantized
from tilepress.kernels import reference


@pytest.mark.parametrize("size", [2.0**-24, 2.0**-10, 0.03, 0.5, 1.7, 60.0, 400.0, 5e4])
@pytest.mark.parametrize("format", ["e4m3", "bf8", "fp16", "nf4:g32", "mxfp8", "e2m3:g64"])
def test_halves_have_room_for_the_largest_and_the_smallest(format, size, isa):
    """Products of one sign, the largest that there can be, and beside them the smallest."""
    weight = torch.full((32, 96), size)
    weight[5:, 40:] = size / 3
    weight[16:, ::3] *= 2.0**-9
    packed = tiles.pack(weight, format)
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.full((3, 96), 1.99).to(dtype) * torch.tensor([[1.0], [-1.0], [2.0**-12]]).to(dtype)
        x[:, 64:80] *= 2.0**-9
        for variant in variants(packed):
            exact = reference.linear(x, packed)
            if exact.abs().max() < torch.finfo(dtype).max:
                assert_within_bound(x, packed, variant=variant)


@pytest.mark.parametrize(("format", "code"), [("e4m3", 0x7F), ("e4m3", 0xFF), ("bf8", 0x7C), ("bf8", 0xFE)])
@pytest.mark.parametrize("sparse", [False, True])
def test_weights_that_are_no_numbers_pass_through(format, code, sparse, isa):
    codes = torch.full((16, 64), 0x30, dtype=torch.uint8)
    codes[3, 7] = code
    keep = torch.ones(16, 64, dtype=torch.bool) if sparse else None
    packed = tiles.pack_codes(Quantized(codes), format, mask=keep)
    y = kernels.linear(torch.ones(1, 64, dtype=torch.bfloat16), packed)
    assert y.isfinite().sum() == 15 and not y[0, 3].isfinite()
    with pytest.raises(ValueError, match=r"no kernel for|wants weights that fp16 holds"):
        kernels.linear(torch.ones(1, 64), packed, variant="linear_f32_f16_any")


def test_halves_serve_a_few_rows_and_no_float32():
    isas = kernels.supported_isas()
    isa = next((name for name in ("amx", "neon_dotprod") if name in isas), None)
    if isa is None:
        pytest.skip("no arithmetic of fp16 here")
    for format in ("e4m3", "bf8", "fp16", "nf4:g64"):
        packed = pack(format, 16, 64, 0.5)
        assert kernels.linear_kernel(packed, 1, torch.bfloat16) == f"linear_f32_f16_any/{isa}"
        assert kernels.linear_kernel(packed, 1, torch.float16) == f"linear_f32_f16_any/{isa}"
        assert "f16_f16" not in kernels.linear_kernel(packed, 1, torch.float32).replace("bf16_bf16", "")
        assert "f16_f16" not in kernels.linear_kernel(packed, 16, torch.bfloat16).replace("bf16_bf16", "")
