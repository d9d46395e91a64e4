"""Integer multiply-accumulate units: torch's and numpy's integer products."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tilepress.simulate.units import int_mac, m_ant_mac
from tilepress.simulate.units.int_mac import IntMac
from tilepress.simulate.units.m_ant_mac import MAntMac, SumBits

bytes_ = st.lists(st.tuples(st.integers(-128, 127), st.integers(-128, 127)), min_size=1, max_size=60)


@given(pairs=bytes_, cut=st.integers(1, 59))
def test_chunks_have_scales_a_power_of_two_apart(pairs, cut):
    x, weights = torch.tensor(pairs).T
    chunks = [cut, len(x) - cut] if cut < len(x) else [len(x)]
    scales = torch.ones(len(x), dtype=torch.int64)
    scales[: cut if len(chunks) > 1 else 0] = 2
    dot = IntMac().dot(x, weights, chunks)
    assert dot.total == int((scales * x * weights).sum())
    assert dot.cycles == int_mac.cycles(len(x)) and dot.events == int_mac.events(len(x), len(chunks) - 1)


@given(pairs=bytes_)
def test_a_sum_of_16_bits_wraps_as_numpys(pairs):
    x, weights = torch.tensor(pairs).T
    total = np.add.reduce(x.numpy().astype(np.int16) * weights.numpy().astype(np.int16), dtype=np.int16)
    assert IntMac(sum_bits=16).dot(x, weights).total == int(total)


@pytest.mark.parametrize("shifts", [0, 3])
def test_the_longest_sum_that_never_wraps(shifts):
    pairs = int_mac.longest(shifts, sum_bits=22)
    for count, fits in ((pairs, True), (pairs + 1, False)):
        x = torch.full((count + shifts,), -128)
        x[count:] = 0
        total = IntMac(sum_bits=22).dot(x, x, [count, *[1] * shifts]).total
        assert (total == count << 14 + shifts) == fits
    assert int_mac.longest(0) == 131_071


def test_a_group_is_a_product_with_the_values_of_codes():
    random = np.random.default_rng(0)
    for count in (1, 7, 64):
        for coefficient in (0, 17, 255):
            x, codes = (
                torch.from_numpy(random.integers(-128, 128, count)),
                torch.from_numpy(random.integers(0, 16, count)),
            )
            table = torch.tensor([m_ant_mac.value(code, coefficient) for code in range(16)])
            dot = MAntMac().dot(x, codes, coefficient)
            assert dot.total == int(x @ table[codes])
            assert dot.cycles == m_ant_mac.cycles(count) and dot.events == m_ant_mac.events(count)


def test_values_of_the_type():
    assert [m_ant_mac.value(code, 0) for code in range(8)] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert [m_ant_mac.value(code, 17) for code in (0, 1, 7, 8, 15)] == [1, 19, 247, -1, -247]


def test_sums_fit():
    bits = SumBits(8, 8, 64)
    assert (bits.multiplied, bits.shifted, bits.joined) == (17, 22, 25)


def test_bad_input():
    x = torch.ones(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"pairs are two rows \[pairs\], not \[3\] and \[2\]"):
        IntMac().dot(x, x[:2])
    with pytest.raises(TypeError, match=r"activations are integers of 8 bits, not torch\.float32"):
        IntMac().dot(x.float(), x)
    with pytest.raises(ValueError, match="weights are integers of 4 bits, not 1 to 8"):
        IntMac(weight_bits=4).dot(x, torch.tensor([1, 1, 8]))
    for chunks in ([2, 2], [3, 0]):
        with pytest.raises(ValueError, match=r"chunks have at least a pair each and 3 together, not \["):
            IntMac().dot(x, x, chunks)
    with pytest.raises(ValueError, match=r"a group is two rows of at most 2 pairs, not \[3\] and \[3\]"):
        MAntMac(2).dot(x, x, 0)
    with pytest.raises(ValueError, match="codes are integers from 0 to 15, not"):
        MAntMac().dot(x, 16 * x, 0)
    with pytest.raises(ValueError, match="a coefficient has 8 bits, 0 to 255, not 256"):
        MAntMac().dot(x, x, 256)
