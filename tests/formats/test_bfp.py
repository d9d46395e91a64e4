"""Block floating point: the torch version against the reference, and against arithmetic done another way."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.bfp_cases import (
    DTYPES,
    EDGES,
    finite_halves,
    formats,
    on_groups,
    on_mantissas,
    same,
    same_bits,
    tensors,
    varied,
)
from tests.formats.devices import on_devices
from tilepress.formats import bfp_reference as reference
from tilepress.formats.bfp import BFP, decode, demote, encode, pack_planes, unpack_planes


def reference_groups(x: torch.Tensor, format: BFP, axis: int, nonfinite="error") -> list[reference.Group]:
    """Every group of `x` by the reference, in the order of the flattened torch groups."""
    length = x.shape[axis]
    rows = x.float().movedim(axis, -1).reshape(-1, length).tolist() if x.numel() else []
    return [
        reference.encode_group(row[start : start + format.group], format, nonfinite)
        for row in rows
        for start in range(0, length, format.group)
    ]


def assert_follows_reference(x: torch.Tensor, format: BFP, axis: int = -1, nonfinite="error", device="cpu"):
    t = encode(x.to(device), format, axis, nonfinite)
    groups = reference_groups(x, format, axis, nonfinite)
    assert t.exponent.flatten().tolist() == [g.exponent for g in groups]
    assert t.sign.reshape(-1, format.group).int().tolist() == [g.signs for g in groups]
    assert t.magnitude.reshape(-1, format.group).tolist() == [g.magnitudes for g in groups]
    assert t.overflowed == sum(g.overflowed for g in groups)
    values = torch.tensor([reference.decode_group(g, format) for g in groups]).reshape(t.magnitude.shape)
    values = values.flatten(-2)[..., : x.shape[axis]].movedim(-1, axis)
    assert same_bits(decode(t), values)
    planes = pack_planes(t).planes.flatten(0, -3).tolist()
    assert planes == [[list(word) for word in reference.pack_group(g, format)] for g in groups]


def truncated(groups: np.ndarray, mantissa: int) -> tuple[np.ndarray, np.ndarray]:
    """Float64 [..., g] truncated towards zero to multiples of a unit, and the units [..., 1].

    Another road to the format: no exponent fields or significands, the power of two below the largest value.
    """
    largest = np.abs(groups).max(-1, keepdims=True)
    power = np.maximum(np.frexp(largest)[1] - 1, -14)
    power[largest == 0] = -14
    unit = 2.0 ** (power - (mantissa - 1))
    return np.trunc(groups / unit) * unit, unit


# The descriptor


def test_descriptor():
    assert str(BFP(32, 8)) == "bfp:g32:m8"
    assert BFP(32, 8).bits_per_value == 1 + 8 + 5 / 32
    assert BFP(64, 4) == BFP(group=64, mantissa=4) and hash(BFP(64, 4)) == hash(BFP(64, 4))
    with pytest.raises(FrozenInstanceError):
        BFP(32, 8).mantissa = 4


@pytest.mark.parametrize("group", [0, 8, 48, 256, 32.0])
def test_bad_group_is_refused(group):
    with pytest.raises(ValueError, match=r"group must be one of \(16, 32, 64, 128\), got"):
        BFP(group, 8)


@pytest.mark.parametrize("mantissa", [-1, 0, 17, 8.0, True])
def test_bad_mantissa_is_refused(mantissa):
    with pytest.raises(ValueError, match="mantissa must be an int from 1 to 16, got"):
        BFP(32, mantissa)


# Worked by hand


@on_devices
def test_worked_example(device):
    x = torch.zeros(16, device=device)
    x[0], x[1], x[2], x[3], x[9] = 1.0, -1.5, 0.25, -0.124, -0.5
    t = encode(x, BFP(16, 4))
    assert t.exponent.tolist() == [15]
    assert t.magnitude[0, :10].tolist() == [0b1000, 0b1100, 0b0010, 0, 0, 0, 0, 0, 0, 0b0100]
    assert decode(t)[:10].tolist() == [1.0, -1.5, 0.25, 0, 0, 0, 0, 0, 0, -0.5]
    planes = pack_planes(t).planes
    assert planes.dtype == torch.uint8 and planes.shape == (1, 5, 2)
    assert planes[0].tolist() == [
        [0b00001010, 0b00000010],  # signs: values 1, 3 (truncated to -0) and 9
        [0b00000011, 0b00000000],  # eights: values 0 and 1
        [0b00000010, 0b00000010],  # fours: values 1 and 9
        [0b00000100, 0b00000000],  # twos: value 2
        [0b00000000, 0b00000000],  # ones
    ]


def test_all_zero_group():
    t = encode(torch.tensor([0.0, -0.0] * 8), BFP(16, 8))
    assert t.exponent.tolist() == [0] and not t.magnitude.any()
    assert t.sign[0].tolist() == [False, True] * 8
    assert same_bits(decode(t), torch.tensor([0.0, -0.0] * 8))


def test_subnormals_have_the_scale_of_the_least_normal():
    least_normal, subnormal = 2.0**-14, 3 * 2.0**-24
    t = encode(torch.tensor([subnormal]), BFP(16, 11))
    assert (t.exponent.item(), t.magnitude[0, 0].item()) == (0, 3)
    t = encode(torch.tensor([least_normal, subnormal]), BFP(16, 11))
    assert (t.exponent.item(), t.magnitude[0, :2].tolist()) == (1, [1024, 3])


def test_sign_outlives_the_magnitude():
    t = encode(torch.tensor([60000.0, -1e-7]), BFP(16, 16))
    assert t.sign[0, 1] and t.magnitude[0, 1] == 0
    assert math.copysign(1, decode(t)[1].item()) == -1


# Against the reference


@on_devices
@on_groups
@on_mantissas
def test_every_format_follows_the_reference(group, mantissa, device):
    x = torch.cat([varied(group + 9, seed=mantissa), torch.tensor(EDGES).clamp(-65504, 65504)])
    small = torch.cat([x[:20] * 2.0**-10, x[:20].clamp(-1, 1)])
    assert_follows_reference(torch.cat([x, small]).half(), BFP(group, mantissa), device=device)


@on_devices
@settings(max_examples=200)
@given(x=tensors(), format=formats, data=st.data())
def test_any_tensor_follows_the_reference(device, x, format, data):
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    assert_follows_reference(x, format, axis, device=device)


@on_devices
def test_nonfinite_values_follow_the_reference(device):
    x = torch.tensor([math.inf, -math.inf, math.nan, -math.nan, 65280.0, -0.0])
    for dtype in DTYPES:
        assert_follows_reference(x.to(dtype), BFP(16, 16), nonfinite="saturate", device=device)


def test_reference_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="inf is infinite or NaN"):
        reference.encode_group([math.inf], BFP(16, 4))
    with pytest.raises(ValueError, match="bfp:g16:m4 holds 16 values, got 17"):
        reference.encode_group([0.0] * 17, BFP(16, 4))


# Against arithmetic done another way


@on_devices
@on_mantissas
def test_every_half_under_every_exponent_is_truncated(mantissa, device):
    """All finite FP16 values, 15 to a group with an anchor of each exponent field, 1 to 30."""
    halves = torch.nn.functional.pad(finite_halves(), (0, -len(finite_halves()) % 15)).reshape(-1, 15)
    anchors = (2.0 ** torch.arange(-14, 16)).half()
    x = torch.cat([halves.expand(30, -1, -1), anchors[:, None, None].expand(-1, len(halves), 1)], dim=-1)
    expected, _ = truncated(x.double().numpy(), mantissa)
    t = encode(x.to(device), BFP(16, mantissa))
    assert t.magnitude.max() < 2**mantissa and t.exponent.max() <= 30
    assert same_bits(decode(t), torch.from_numpy(expected.astype(np.float32)))


@on_groups
@on_mantissas
def test_every_half_is_truncated_in_mixed_groups(group, mantissa):
    x = finite_halves()
    x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))].reshape(-1, group)
    values = x.double().numpy()
    expected, unit = truncated(values, mantissa)
    got = decode(encode(x, BFP(group, mantissa))).double().numpy()
    assert np.array_equal(got, expected)
    assert (np.abs(values - got) < unit).all()


@on_mantissas
def test_every_half_alone_loses_only_bits_beyond_its_mantissa(mantissa):
    x = finite_halves().reshape(-1, 1)
    expected, _ = truncated(x.double().numpy(), mantissa)
    got = decode(encode(x, BFP(16, mantissa)))
    assert same_bits(got, torch.from_numpy(expected.astype(np.float32)))
    if mantissa >= 11:
        assert same_bits(got.half(), x)


@settings(max_examples=100)
@given(x=tensors(), format=formats)
def test_error_stays_below_one_unit(x, format):
    t = encode(x, format)
    unit = 2.0 ** (t.exponent.int().clamp(min=1) - 15 - (format.mantissa - 1)).double()
    unit = unit.repeat_interleave(format.group, dim=-1)[..., : x.shape[-1]]
    half = x.double().clamp(-65504, 65504).half().double()
    assert ((half - decode(t).double()).abs() < unit).all()


@settings(max_examples=50)
@given(x=tensors(), format=formats)
def test_encoding_a_decoded_tensor_changes_nothing(x, format):
    """Truncation never lowers a group's exponent. Up to 11 bits, as FP16 holds no more."""
    format = replace(format, mantissa=min(format.mantissa, 11))
    t = encode(x, format)
    assert same(encode(decode(t), format), replace(t, overflowed=0))


# Dtypes, shapes and axes


@on_devices
@pytest.mark.parametrize("dtype", DTYPES)
def test_decode_rounds_to_the_dtype_asked_for(dtype, device):
    x = varied(500)
    t = encode(x.to(device), BFP(32, 13))
    got = decode(t, dtype)
    assert got.dtype == dtype and got.device.type == device
    assert same_bits(got, decode(encode(x, BFP(32, 13))).to(dtype))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_axis_is_moved_last(axis):
    x = varied(3 * 40 * 17).reshape(3, 40, 17)
    t = encode(x, BFP(16, 6), axis)
    assert t.axis == axis % 3 and t.shape == (3, 40, 17)
    moved = encode(x.movedim(axis, -1).contiguous(), BFP(16, 6))
    assert torch.equal(t.magnitude, moved.magnitude) and torch.equal(t.exponent, moved.exponent)
    assert decode(t).shape == x.shape and decode(t).is_contiguous()
    assert same_bits(decode(t), decode(moved).movedim(-1, axis).contiguous())


def test_ragged_group_is_padded_with_zeros():
    t = encode(-torch.ones(2, 20), BFP(16, 4))
    assert t.sign.shape == t.magnitude.shape == (2, 2, 16) and t.exponent.shape == (2, 2)
    assert t.sign[:, 1].tolist() == [[True] * 4 + [False] * 12] * 2
    assert t.magnitude[:, 1].tolist() == [[8] * 4 + [0] * 12] * 2
    assert decode(t).shape == (2, 20)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)])
@pytest.mark.parametrize("axis", [0, -1])
def test_empty_tensors_stay_empty(shape, axis):
    t = unpack_planes(pack_planes(encode(torch.empty(shape), BFP(32, 8), axis)))
    assert decode(t).shape == shape and t.bits == t.exponent.numel() * 5 == 0


def test_bits_count_real_values_and_whole_groups():
    assert encode(torch.ones(3, 64), BFP(32, 8)).bits == 3 * 64 * BFP(32, 8).bits_per_value
    assert encode(torch.ones(3, 33), BFP(32, 8)).bits == 3 * (33 * 9 + 2 * 5)


def test_gradients_are_not_recorded():
    assert not decode(encode(torch.ones(4, requires_grad=True), BFP(16, 4))).requires_grad


# Overflow and refusals


@on_devices
def test_overflow_saturates_and_is_counted(device):
    rounds_down = torch.tensor(65520.0).nextafter(torch.tensor(0.0)).item()
    x = torch.tensor([65504.0, rounds_down, 65520.0, -65520.0, 3e38, -1.0], device=device)
    t = encode(x, BFP(16, 11))
    assert t.overflowed == 3
    assert decode(t).tolist() == [65504.0, 65504.0, 65504.0, -65504.0, 65504.0, 0.0]
    assert demote(t, 4).overflowed == unpack_planes(pack_planes(t)).overflowed == 3
    # All but -1: bfloat16 has nothing between 65280 and 65536.
    assert encode(x.bfloat16(), BFP(16, 11)).overflowed == 5


def test_nonfinite_is_refused_with_a_count_and_a_hint():
    x = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    for dtype in DTYPES:
        with pytest.raises(ValueError, match=r'3 of 4 values are infinite or NaN.*pass nonfinite="saturate"'):
            encode(x.to(dtype), BFP(16, 4))
    with pytest.raises(ValueError, match="1 of 2 values"):
        encode(torch.tensor([1e9, math.inf]), BFP(16, 4))


def test_nonfinite_saturates_when_asked():
    t = encode(torch.tensor([1.0, math.inf, -math.inf, -math.nan, 1e9]), BFP(16, 11), nonfinite="saturate")
    assert t.overflowed == 4
    assert same_bits(decode(t)[1:], torch.tensor([65504.0, -65504.0, 0.0, 65504.0]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.complex64])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match=f"must be float16, bfloat16 or float32, got {dtype}"):
        encode(torch.zeros(4, dtype=dtype), BFP(16, 4))
    with pytest.raises(TypeError, match=f"must be float16, bfloat16 or float32, got {dtype}"):
        decode(encode(torch.zeros(4), BFP(16, 4)), dtype)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="0-d tensor has no axis"):
        encode(torch.tensor(1.0), BFP(16, 4))
    with pytest.raises(ValueError, match="axis must be from -2 to 1 for a 2-d tensor, got 2"):
        encode(torch.zeros(2, 2), BFP(16, 4), axis=2)
    with pytest.raises(ValueError, match="nonfinite must be"):
        encode(torch.zeros(2), BFP(16, 4), nonfinite="ignore")
