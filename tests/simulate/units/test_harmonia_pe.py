"""Harmonia's element in its three modes: the bits of `kernels.linear`, and of sums of decoded groups."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.units.data import halves, spread
from tests.simulate.units.matrices import narrowed, neurons
from tests.simulate.units.oracle import total
from tilepress import kernels
from tilepress.formats.bfp import BFP, decode, demote, encode
from tilepress.simulate.units import harmonia_pe
from tilepress.simulate.units.dot import Weights
from tilepress.simulate.units.harmonia_pe import Mode, Pair, Pe, attention_pairs, linear_pairs


def by_groups(first, second):
    """The dot product of two encoded rows: groups exactly, sums of groups in float32."""
    total = torch.zeros(())
    products = decode(first).double() * decode(second).double()
    for group in products.split(32):
        assert group.sum() == group.sum().float()
        total = total + group.sum().float()
    return total.item()


def assert_counted(dot, pairs):
    modes = [pair.mode for pair in pairs]
    assert dot.cycles == harmonia_pe.cycles(modes)
    assert dot.events == total(*((harmonia_pe.group_events(mode), 1) for mode in modes))


@pytest.mark.parametrize("inputs, group", [(320, 32), (100, 32), (256, 128)])
@pytest.mark.parametrize("mantissa", [1, 4, 8])
def test_weights_as_the_kernel_has_them(mantissa, inputs, group):
    x, (matrix, rows) = spread(2, inputs, seed=mantissa), neurons(3, inputs, group)
    expected = kernels.linear(x.float(), matrix, activations=f"bfp:g32:m{mantissa}")
    encoded = [encode(row, BFP(32, mantissa)) for row in x]
    assert [[Pe().dot(linear_pairs(row, one)).total for one in rows] for row in encoded] == expected.tolist()


@settings(max_examples=50)
@given(x=halves(st.integers(1, 300)), seed=st.integers(0, 99))
def test_any_values_with_weights(x, seed):
    matrix, (weights,) = neurons(1, len(x), 32, seed)
    pairs = linear_pairs(encode(x, BFP(32, 8)), weights)
    result = Pe().dot(pairs)
    assert result.total == kernels.linear(x.float(), matrix, activations="bfp:g32:m8").item()
    assert result.output == kernels.linear(x, matrix, activations="bfp:g32:m8").item()
    assert_counted(result, pairs)


@settings(max_examples=50)
@given(x=halves(2, st.integers(1, 300)), mantissa=st.integers(1, 8))
def test_any_values_with_each_other(x, mantissa):
    first, second = encode(x[0], BFP(32, 8)), encode(x[1], BFP(32, mantissa))
    pairs = attention_pairs(first, second)
    assert pairs[0].mode is (Mode.m8m4 if mantissa <= 4 else Mode.m8m8)
    result = Pe().dot(pairs)
    assert result.total == by_groups(first, second)
    assert_counted(result, pairs)


@settings(max_examples=30)
@given(x=halves(2, 160), wide=st.lists(st.booleans(), min_size=5, max_size=5))
def test_modes_change_from_group_to_group(x, wide):
    """Truncated to four bits, a group is the same number in M8M4, and in M8M8 with low bits of zero."""
    first, second = encode(x[0], BFP(32, 8)), encode(x[1], BFP(32, 8))
    truncated = demote(second, 4).magnitude << 4
    magnitude = torch.where(torch.tensor(wide)[:, None], second.magnitude, truncated)
    mixed = attention_pairs(first, type(second)(second.format, (160,), 0, second.sign, magnitude, second.exponent))
    narrow = [narrowed(pair) for pair in mixed]
    assert all(pair.mode is Mode.m8m4 for pair, keep in zip(narrow, wide, strict=True) if not keep)
    result = Pe().dot(narrow)
    assert result.total == Pe().dot(mixed).total
    assert_counted(result, narrow)


@pytest.mark.parametrize("mode, right", [(Mode.m8w4, -8), (Mode.m8m4, 15), (Mode.m8m4, -15), (Mode.m8m8, 255)])
def test_extremes_fit(mode, right):
    pair = Pair(mode, np.full(32, -255), np.full(32, right), 3)
    assert Pe().dot([pair] * 5).total == 5 * 32 * -255 * right * 8


def test_128_products_take_four_cycles_and_64_of_wide_ones():
    for mode, groups in ((Mode.m8w4, 4), (Mode.m8m4, 4), (Mode.m8m8, 2)):
        assert harmonia_pe.cycles([mode] * 2 * groups) - harmonia_pe.cycles([mode] * groups) == 4
        assert harmonia_pe.group_events(mode).multiplies * groups == 128
    assert harmonia_pe.group_events(Mode.m8m4).float_multiplies == 0


@pytest.mark.parametrize(
    "modes, expected",
    [
        ("4", 4 + 1 + 2),
        ("4444", 4 + 4 + 2),
        ("44444", 8 + 1 + 2),
        ("8", 4 + 2 + 2),
        ("888", 8 + 2 + 2),
        ("8448", 12 + 2 + 2),  # a round has one mode
    ],
)
def test_rounds(modes, expected):
    ones = np.ones(32, np.int64)
    pairs = [Pair({"4": Mode.m8m4, "8": Mode.m8m8}[mode], ones, ones, 0) for mode in modes]
    result = Pe().dot(pairs)
    assert result.total == 32 * len(pairs) and result.cycles == expected
    assert_counted(result, pairs)


def test_sums_in_halves():
    ones = np.full(32, 255)
    assert Pe("fp16").dot([Pair(Mode.m8m8, ones, ones, -10)]).total == 2032.0  # 2032.03…
    assert Pe("fp16").dot([Pair(Mode.m8m8, ones, ones, 0)]).total == 65504.0
    assert Pe("fp16").dot([Pair(Mode.m8m8, ones, ones, -60)]).total == 0.0


@pytest.mark.parametrize(
    "change, message",
    [
        ({"left": np.full(32, 256)}, "the first operand has 8 bits of magnitude, not 256"),
        ({"right": np.full(32, -16)}, "the second operand has 4 bits of magnitude, not 16"),
        ({"right": np.ones(31, np.int64)}, "the second operand has 32 values"),
    ],
)
def test_wrong_groups(change, message):
    good = {"mode": Mode.m8m4, "left": np.ones(32, np.int64), "right": np.ones(32, np.int64), "power": 0}
    with pytest.raises(ValueError, match=message):
        Pair(**good | change)


def test_wrong_rows():
    weights = Weights(torch.ones(64, dtype=torch.int64), torch.ones(2), 32)
    with pytest.raises(ValueError, match=r"rows in groups of 32, not \[64\] in bfp:g64:m8"):
        linear_pairs(encode(torch.ones(64), BFP(64, 8)), weights)
    with pytest.raises(ValueError, match=r"\[64\] activations meet \[60\]: they must be as many"):
        attention_pairs(encode(torch.ones(64), BFP(32, 8)), encode(torch.ones(60), BFP(32, 4)))
    with pytest.raises(ValueError, match="the first operand has 8 bits"):
        linear_pairs(encode(torch.ones(64), BFP(32, 9)), weights)
    with pytest.raises(ValueError, match="at least one group"):
        Pe().dot([])
    with pytest.raises(ValueError, match="at least one group"):
        harmonia_pe.cycles([])
