"""Native bit planes against `formats.bfp`, which specifies them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.bfp_cases import DTYPES, EDGES, MANTISSAS, finite_halves, same_bits, tensors, varied

from tilepress import _native, kernels
from tilepress.formats import BFP, bfp
from tilepress.kernels import PackedPlanes, pack_planes, unpack_planes

OPERATIONS = ("pack_planes_fp", "unpack_f16_planes")  # see tests/conftest.py
SPECIAL = [torch.inf, -torch.inf, torch.nan, -torch.nan]


def fields(packed: PackedPlanes) -> list[int]:
    """The exponents of its stream."""
    stream = int.from_bytes(bytes(packed.exponents.tolist()), "little")
    return [stream >> 5 * group & 31 for group in range(len(packed.planes))]


def assert_specified(x, format, nonfinite="error"):
    """Packed and unpacked as the specification has it."""
    expected = bfp.encode(x, format, nonfinite=nonfinite)
    packed = pack_planes(x, format, nonfinite=nonfinite)
    assert torch.equal(packed.planes, bfp.pack_planes(expected).planes.flatten(0, -3))
    assert fields(packed) == expected.exponent.flatten().tolist()
    assert packed.overflowed == expected.overflowed
    assert same_bits(unpack_planes(packed), bfp.decode(expected, torch.float16))


@pytest.mark.parametrize("mantissa", MANTISSAS)
def test_every_half_among_others_of_its_size_and_of_all_sizes(mantissa, isa):
    format = BFP(64, mantissa)
    assert_specified(finite_halves(), format)
    assert_specified(varied(1 << 14, seed=mantissa).reshape(16, -1), format)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mantissa", [1, 7, 8, 9, 16])
def test_edges_in_every_type(mantissa, dtype, isa):
    edges = torch.tensor([*EDGES, *(edge * 0.75 for edge in EDGES)])
    x = edges.clamp(-65504, 65504).half() if dtype == torch.float16 else edges.to(dtype)
    for chosen in (x, x.repeat(5), x[torch.randint(len(x), (7, 130), generator=torch.Generator().manual_seed(0))]):
        assert_specified(chosen, BFP(64, mantissa))


@settings(max_examples=150)
@given(x=tensors(), mantissa=st.sampled_from(MANTISSAS), threads=st.integers(1, 5))
def test_any_tensor(x, mantissa, threads):
    format = BFP(64, mantissa)
    assert_specified(x, format)
    packed = pack_planes(x, format, threads=threads)
    assert same_bits(unpack_planes(packed, threads=threads), unpack_planes(packed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", SPECIAL)
def test_what_is_not_finite_is_refused_or_saturated(special, dtype, isa):
    x = torch.randn(3, 200, generator=torch.Generator().manual_seed(1))
    x[1, 70], x[2, 199], x[2, 0] = special, special, -3.0
    with pytest.raises(ValueError, match=r'2 of 600 values are infinite or NaN.* pass nonfinite="saturate"'):
        pack_planes(x.to(dtype), "bfp:g64:m5")
    assert_specified(x.to(dtype), BFP(64, 5), nonfinite="saturate")


@pytest.mark.parametrize("mantissa", MANTISSAS)
def test_planes_that_hold_any_bits_decode_as_specified(mantissa, isa):
    """Also those that no value is encoded to: more bits than FP16 keeps, in the range where it overflows or is
    subnormal."""
    chance, format = torch.Generator().manual_seed(mantissa), BFP(64, mantissa)
    planes = torch.randint(256, (62, 1 + mantissa, 8), generator=chance, dtype=torch.uint8)
    exponent = torch.arange(31, dtype=torch.uint8).repeat(2)
    stream = sum(int(field) << 5 * group for group, field in enumerate(exponent))
    stored = torch.tensor(list(stream.to_bytes(39, "little")), dtype=torch.uint8)
    shape = (62 * 64,)
    expected = bfp.decode(bfp.unpack_planes(bfp.BitPlanes(format, shape, 0, planes, exponent)), torch.float16)
    assert same_bits(unpack_planes(PackedPlanes(format, shape, planes, stored)), expected)


@pytest.mark.parametrize("mantissa", MANTISSAS)
def test_memory_is_what_the_format_says(mantissa):
    format = BFP(64, mantissa)
    packed = pack_planes(torch.randn(32, 1024, dtype=torch.float16), format)
    assert packed.nbytes * 8 == 32 * 1024 * format.bits_per_value
    assert packed.planes.untyped_storage().nbytes() + packed.exponents.untyped_storage().nbytes() == packed.nbytes


def test_order_in_memory_is_not_asked_for():
    x = torch.randn(70, 5, generator=torch.Generator().manual_seed(0)).half()
    assert torch.equal(pack_planes(x.T, "bfp:g64:m6").planes, pack_planes(x.T.contiguous(), "bfp:g64:m6").planes)


def test_dispatch_knows_both(isa):
    for operation in ("pack_planes_fp", "unpack_f16_planes"):
        assert kernels.chosen(operation) in kernels.registered()[operation]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"x": torch.zeros(64, dtype=torch.int8)},
            TypeError,
            "float32, bfloat16 or float16 on the CPU, not torch.int8",
        ),
        ({"x": torch.zeros(64, device="meta")}, TypeError, "on the CPU, not torch.float32 on meta"),
        ({"x": torch.tensor(1.0)}, ValueError, r"no axis to group along; reshape it to \[1\]"),
        ({"format": "bfp:g32:m5"}, ValueError, "groups of 64 values, not 32"),
        ({"format": "int4:g32"}, ValueError, "bit planes hold block floating point, .* not int4:g32"),
        ({"nonfinite": "drop"}, ValueError, "nonfinite must be"),
        ({"threads": 0}, ValueError, "at least one thread"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        pack_planes(**({"x": torch.zeros(64), "format": "bfp:g64:m5"} | change))


def good() -> PackedPlanes:
    return pack_planes(torch.ones(3, 100), "bfp:g64:m5")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"planes": torch.zeros(5, 6, 8, dtype=torch.uint8)}, ValueError, r"planes must have shape \(6, 6, 8\)"),
        ({"planes": torch.zeros(6, 6, 8)}, TypeError, "planes must be uint8"),
        ({"planes": torch.zeros(6, 6, 16, dtype=torch.uint8)[..., ::2]}, TypeError, "and contiguous"),
        ({"exponents": torch.zeros(3, dtype=torch.uint8)}, ValueError, r"exponents must have shape \(4,\)"),
        ({"shape": (3, 129)}, ValueError, r"planes must have shape \(9, 6, 8\)"),
        ({"shape": ()}, ValueError, "a shape of at least one side"),
        ({"shape": (-3, -100)}, ValueError, "none negative"),
        ({"format": BFP(64, 6)}, ValueError, r"planes must have shape \(6, 7, 8\)"),
        ({"format": BFP(32, 5)}, ValueError, "groups of 64 values"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        replace(good(), **change)


def test_damaged_planes_are_refused():
    packed = good()
    packed.planes[1, 0, 4] |= 16  # value 100 of the first row
    with pytest.raises(ValueError, match="bits are set beyond the last value of a ragged group"):
        unpack_planes(packed)
    packed = good()
    packed.exponents[0] |= 31
    with pytest.raises(ValueError, match="1 exponents lie above 30, FP16's largest; the data is damaged"):
        unpack_planes(packed)
    packed = good()
    packed.exponents[3] |= 64
    with pytest.raises(ValueError, match="bits are set beyond the last exponent"):
        unpack_planes(packed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mantissa": 17}, "a mantissa has 1 to 16 bits"),
        ({"rows": -1}, "sides must not be negative"),
        ({"rows": 1 << 39, "cols": 1 << 39}, "the tensor is too large"),
        ({"cols": 65}, "planes has 48 entries, not 96"),
        ({"exponents": torch.zeros(2, dtype=torch.uint8)}, "exponents has 2 entries, not 1"),
        ({"values": torch.zeros(127, dtype=torch.uint8)}, "values has 127 entries, not 128"),
    ],
)
def test_native_code_checks_again(change, message):
    arrays = {"planes": 48, "exponents": 1, "values": 128}
    given = {"rows": 1, "cols": 64, "mantissa": 5, "threads": 1}
    given |= {name: torch.zeros(size, dtype=torch.uint8) for name, size in arrays.items()} | change
    with pytest.raises(ValueError, match=message):
        _native.unpack_planes(**given)
    with pytest.raises(ValueError, match=message):
        _native.pack_planes(**given, type="fp16")
