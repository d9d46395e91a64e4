"""Which variant of a linear layer is chosen: by row limits, which are data."""

import pytest
import torch
from tests.tiles.cases import matrix

from tilepress import _native, kernels, tiles

OPERATIONS = ("linear_f32_i8_int", "linear_f32_f32_any")  # see tests/conftest.py
KINDS = ("integer", "zero_point", "lookup", "wide_integer")

# Rows up to which float activations become int8 limbs, by kind of weights: dense, then sparse.
LIMBS = {
    ("portable", "float32"): ((0, 0, 0, 0), (0, 0, 0, 0)),
    ("portable", "bf16"): ((0, 0, 0, 0), (0, 0, 0, 0)),
    ("neon_dotprod", "float32"): ((4, 4, 3, 4), (4, 4, 2, 4)),
    ("neon_dotprod", "fp16"): ((4, 4, 3, 4), (4, 4, 2, 4)),
    ("neon_i8mm", "bf16"): ((4, 4, 3, 4), (4, 4, 2, 4)),
    ("avx2", "float32"): ((2, 2, 2, 2), (2, 0, 0, 2)),
    ("avx2", "fp16"): ((2, 2, 2, 2), (2, 0, 0, 2)),
    ("avx2", "bf16"): ((6, 6, 3, 1), (3, 0, 2, 1)),
    ("avx512", "float32"): ((1, 2, 0, 0), (0, 0, 0, 0)),
    ("avx512", "bf16"): ((2, 6, 2, 0), (0, 0, 0, 0)),
    ("avx512_vnni", "fp16"): ((6, 6, 6, 2), (2, 2, 0, 0)),
    ("avx512_vnni", "bf16"): ((16, 16, 16, 16), (16, 3, 3, 0)),
    ("avx512_vbmi2", "float32"): ((6, 6, 6, 8), (3, 3, 2, 8)),
    ("avx512_vbmi2", "fp16"): ((6, 6, 6, 8), (3, 3, 2, 8)),
    ("avx512_vbmi2", "bf16"): ((16, 16, 16, 16), (16, 16, 4, 16)),
    ("avx512_bf16", "float32"): ((6, 6, 6, 8), (3, 3, 2, 8)),
    ("avx512_bf16", "fp16"): ((16, 16, 16, 16), (16, 16, 2, 16)),
    ("avx512_bf16", "bf16"): ((16, 16, 16, 16), (16, 8, 4, 16)),
    ("amx", "float32"): ((6, 6, 6, 8), (3, 3, 2, 8)),
    ("amx", "fp16"): ((5, 8, 4, 6), (6, 3, 2, 4)),
    ("amx", "bf16"): ((3, 4, 1, 3), (4, 4, 3, 4)),
    ("amx", "int8"): ((8, 8, 8, 8), (8, 8, 8, 8)),
    ("amx", "two_limbs"): ((4, 4, 4, 4), (4, 4, 4, 4)),
}
# Of weights of every kind: operation, instruction set, activations → dense, sparse.
OF_ALL_KINDS = {
    ("linear_f32_f32_any", "portable", "float32"): (16, 16),
    ("linear_f32_f32_any", "neon_i8mm", "bf16"): (16, 16),
    ("linear_f32_f32_any", "avx2", "fp16"): (16, 16),
    ("linear_f32_f32_any", "avx512", "float32"): (11, 11),
    ("linear_f32_f32_any", "amx", "float32"): (11, 11),
    ("linear_f32_f16_any", "portable", "bf16"): (0, 0),
    ("linear_f32_f16_any", "neon_dotprod", "bf16"): (4, 4),
    ("linear_f32_f16_any", "avx512_bf16", "bf16"): (0, 0),
    ("linear_f32_f16_any", "amx", "fp16"): (1, 2),
    ("linear_f32_bf16_any", "avx512_bf16", "bf16"): (6, 6),
    ("linear_f32_bf16_any", "avx512_bf16", "fp16"): (3, 3),
    ("linear_f32_bf16_any", "amx", "bf16"): (1, 1),
    ("linear_f32_bf16_any", "amx", "fp16"): (0, 0),
    ("linear_f32_bf16_any_tiles", "amx", "bf16"): (32, 32),
    ("linear_f32_bf16_any_tiles", "amx", "fp16"): (16, 16),
    ("linear_f32_bf16_any_groups", "amx", "bf16"): (32, 32),
    ("linear_f32_bf16_any_groups", "amx", "fp16"): (16, 16),
    ("linear_f32_bf16_any_groups", "amx", "two_limbs"): (32, 32),
}
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
# Instruction set, format, sparse, type of x, activations → the operation of the first rows and up to how many, …
CHOICES = [
    ("portable", "int4:g32", False, F32, "float", [("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("portable", "e4m3", True, BF16, "float", [("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("portable", "int4:g32", True, F32, "int8", [("linear_f32_i8_int", 64)]),
    ("neon_dotprod", "int4:g32", False, F32, "float",
     [("linear_f32_i8_int", 4), ("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("neon_dotprod", "mxfp4", True, BF16, "float",
     [("linear_f32_i8_int", 2), ("linear_f32_f16_any", 4), ("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("neon_dotprod", "mxfp4", False, F32, "bf16",
     [("linear_f32_i8_int", 3), ("linear_f32_f16_any", 4), ("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("neon_dotprod", "e4m3", False, F16, "float",
     [("linear_f32_f16_any", 4), ("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("neon_dotprod", "bf16", False, BF16, "float", [("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("neon_dotprod", "uint4:g32", False, F32, "bfp:g32:m8", [("linear_f32_i8_int", 64)]),
    ("avx2", "int4:g32", False, BF16, "float",
     [("linear_f32_i8_int", 6), ("linear_f32_f32_any", 16), ("matmul_f32_f32_f32", 64)]),
    ("avx512_vbmi2", "bf16", True, BF16, "float", [("linear_f32_f32_any", 11), ("matmul_f32_f32_f32", 64)]),
    ("avx512_bf16", "e4m3", False, F16, "float", [("linear_f32_bf16_any", 3), ("matmul_f32_bf16_bf16", 64)]),
    ("amx", "int4:g32", False, BF16, "float",
     [("linear_f32_i8_int", 3), ("linear_f32_bf16_any_groups", 32), ("matmul_f32_bf16_bf16", 64)]),
    ("amx", "e4m3", True, BF16, "float",
     [("linear_f32_f16_any", 2), ("linear_f32_bf16_any_tiles", 32), ("matmul_f32_bf16_bf16", 64)]),
    ("amx", "int4:g32", False, F32, "int8",
     [("linear_f32_i8_int", 8), ("linear_f32_i8_int_tiles", 32), ("matmul_f32_i8_i8", 64)]),
    ("amx", "int4:g32", False, F32, "bfp:g32:m8",
     [("linear_f32_i8_int", 4), ("linear_f32_bf16_any_groups", 32), ("matmul_f32_bf16_bf16_groups", 64)]),
    ("amx", "int4:g32", False, F32, "bfp:g32:m16", [("linear_f32_i8_int", 64)]),
]  # fmt: skip


@pytest.fixture
def limits():
    """Puts limits of the instruction set in force in force, for the test."""
    yield lambda *entries: _native.set_row_limits(kernels.active_isa(), list(entries))
    _native.set_row_limits(kernels.active_isa(), [])


def built_in(isa):
    return {limit[:3]: limit[3] for limit in _native.row_limits(isa, True)}


def chosen(packed, batch, dtype=F32, activations="float"):
    return kernels.linear_kernel(packed, batch, dtype, activations=activations).split("/")[0]


def pack(format, sparse=False):
    return tiles.pack(matrix(48, 160, 0.5), format, sparse=sparse)


@pytest.mark.parametrize(("isa_name", "activations"), LIMBS)
def test_built_in_limits_of_int8_limbs(isa_name, activations):
    limits = built_in(isa_name)
    for density, expected in zip(("dense", "sparse"), LIMBS[isa_name, activations], strict=True):
        rows = [limits["linear_f32_i8_int", f"{density} {kind}", activations] for kind in KINDS]
        assert tuple(rows) == expected


@pytest.mark.parametrize(("operation", "isa_name", "activations"), OF_ALL_KINDS)
def test_built_in_limits_of_all_kinds_of_weights(operation, isa_name, activations):
    limits = built_in(isa_name)
    for density, expected in zip(("dense", "sparse"), OF_ALL_KINDS[operation, isa_name, activations], strict=True):
        for kind in (*KINDS, "fp16", "other"):
            assert limits[operation, f"{density} {kind}", activations] == expected


@pytest.mark.parametrize(("isa_name", "format", "sparse", "dtype", "activations", "expected"), CHOICES)
def test_choices(isa_name, format, sparse, dtype, activations, expected):
    if isa_name not in kernels.supported_isas():
        pytest.skip(f"{isa_name} is not of this machine")
    packed = pack(format, sparse)
    with kernels.forced_isa(isa_name):
        operations = [chosen(packed, batch, dtype, activations) for batch in range(1, 65)]
    assert operations == [next(name for name, rows in expected if batch <= rows) for batch in range(1, 65)]


@pytest.mark.parametrize(
    ("format", "expected"),
    [("int4:g32", "integer"), ("uint4:g32", "zero_point"), ("mxfp4", "lookup"), ("int8:g32", "wide_integer"),
     ("uint8:g128", "wide_integer"), ("e4m3", "fp16"), ("nf4", "fp16"), ("bf16", "other")],
)  # fmt: skip
def test_classes_of_weights(format, expected):
    assert pack(format).native.weight_class == f"dense {expected}"
    assert pack(format, sparse=True).native.weight_class == f"sparse {expected}"


def test_limits_decide(isa, limits):
    packed, x = pack("int4:g32"), torch.randn(1, 160)
    assert packed.native.float_candidates("fp32")[0] == "linear_f32_i8_int"
    limits(("linear_f32_i8_int", "dense integer", "float32", 7), ("linear_f32_f32_any", "dense integer", "float32", 9))
    expected = ["linear_f32_i8_int"] * 7 + ["linear_f32_f32_any"] * 2 + ["matmul_f32_f32_f32"]
    assert [chosen(packed, batch) for batch in range(1, 11)] == expected
    assert torch.equal(kernels.linear(x, packed), kernels.linear(x, packed, variant="linear_f32_i8_int"))
    limits(("linear_f32_i8_int", "dense integer", "float32", 0), ("linear_f32_f32_any", "dense integer", "float32", 0))
    assert chosen(packed, 1) == "matmul_f32_f32_f32"
    assert torch.equal(kernels.linear(x, packed), kernels.linear(x, packed, variant="matmul_f32_f32_f32"))
    limits()
    assert chosen(packed, 1) == ("linear_f32_f32_any" if isa == "portable" else "linear_f32_i8_int")
    assert _native.row_limits(isa, False) == _native.row_limits(isa, True)


def test_batch_invariant_mode_has_no_limits(isa, limits):
    packed = pack("int4:g32")
    limits(("linear_f32_i8_int", "dense integer", "float32", 1024))
    with kernels.batch_invariant():
        assert {chosen(packed, batch) for batch in (1, 5, 64)} == {"matmul_f32_f32_f32"}


GOOD = ("linear_f32_i8_int", "dense integer", "float32", 5)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "linear_f32_i8_any", "no operation with a row limit: linear_f32_i8_any"),
        (0, "matmul_f32_f32_f32", "no operation with a row limit: matmul_f32_f32_f32"),
        (1, "dense", "no weights with a row limit: "),
        (1, "dense integers", "no weights with a row limit: integers"),
        (1, " integer", "no weights with a row limit: "),
        (1, "", "no weights with a row limit: "),
        (2, "int4", "no activations with a row limit: int4"),
        (3, -1, "a row limit is 0 to 1024, not -1"),
        (3, 1025, "a row limit is 0 to 1024, not 1025"),
    ],
)
def test_wrong_limits_are_refused_and_change_nothing(place, value, message):
    isa = kernels.active_isa()
    wrong = [*GOOD[:place], value, *GOOD[place + 1 :]]
    with pytest.raises(ValueError, match=f"^{message}"):
        _native.set_row_limits(isa, [GOOD, tuple(wrong)])
    assert _native.row_limits(isa, False) == _native.row_limits(isa, True)


def test_an_unknown_instruction_set_has_no_limits():
    with pytest.raises(ValueError, match="mmx is not an instruction set we know"):
        _native.row_limits("mmx", True)
    with pytest.raises(TypeError):
        _native.set_row_limits(kernels.active_isa(), [(*GOOD[:3], 2**64)])
