"""Dot products for integer multiply-accumulate units, and what must come out."""

import numpy as np
import torch

from tests.rtl.clocked import enough
from tests.rtl.rivals.pairs import results
from tilepress.rtl.rivals.int_mac import IntMac, IntMacParameters
from tilepress.rtl.rivals.m_ant_mac import MAntMac, MAntMacParameters
from tilepress.simulate.units import int_mac, m_ant_mac


def integers(random, bits, count):
    """Of any size, or all extremes."""
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    if random.integers(3):
        return torch.from_numpy(random.integers(least, most + 1, count))
    return torch.from_numpy(random.choice([least, most, random.choice([0, least, most])], count))


def any_dot(random, bits=(8, 8)):
    """Activations, weights, and how many pairs each of up to eight chunks has."""
    count = int(random.integers(1, 100))
    ends = np.unique([*random.integers(1, count + 1, random.integers(8)), count])
    return *(integers(random, width, count) for width in bits), np.diff([0, *ends]).tolist()


def chunk_pairs(x, weights, chunks):
    begins = {sum(chunks[:number]) for number in range(1, len(chunks))}
    return [
        {"activation": int(value), "weight": int(weight), "shift": int(place in begins)}
        for place, (value, weight) in enumerate(zip(x, weights, strict=True))
    ]


def assert_int_mac(dots, pauses=None, bits=(8, 8, 32)):
    seen = results(IntMac(IntMacParameters(*bits)), [chunk_pairs(*dot) for dot in dots], pauses)
    expected = [int_mac.IntMac(*bits).dot(*dot) for dot in dots]
    assert [total for total, _ in seen] == [one.total for one in expected]
    assert pauses or [cycles for _, cycles in seen] == [one.cycles for one in expected]


def any_group(random, group=64):
    """Activations, codes, coefficient."""
    count = group if random.integers(2) else int(random.integers(1, group + 1))
    codes = random.integers(0, 16, count) if random.integers(3) else np.full(count, random.choice([7, 15]))
    coefficient = int(random.choice([0, 255, random.integers(256)]))
    return integers(random, 8, count), torch.from_numpy(codes), coefficient


def sum_pairs(x, codes):
    return [{"activation": int(value), "weight": int(code)} for value, code in zip(x, codes, strict=True)]


def group_pairs(x, codes, coefficient):
    """The coefficient stands beside the last pair; before it another one, which must not count."""
    pairs = sum_pairs(x, codes)
    return [pair | {"coefficient": 255 - coefficient} for pair in pairs[:-1]] + [
        pairs[-1] | {"coefficient": coefficient}
    ]


def assert_m_ant_mac(groups, pauses=None, group=64):
    unit = MAntMac(MAntMacParameters(group=group))
    seen = results(unit, [group_pairs(*one) for one in groups], pauses)
    expected = [m_ant_mac.MAntMac(group).dot(*one) for one in groups]
    assert [total for total, _ in seen] == [one.total for one in expected]
    assert pauses or [cycles for _, cycles in seen] == [one.cycles for one in expected]


def check_int_mac(seed, vectors):
    """Pairs of random dot products, at least so many; how many."""
    random = np.random.default_rng(seed)
    dots, count = enough(lambda: any_dot(random), lambda dot: len(dot[0]), vectors)
    assert_int_mac(dots)
    return count


def check_m_ant_mac(seed, vectors):
    """As `check_int_mac`, of groups."""
    random = np.random.default_rng(seed)
    groups, count = enough(lambda: any_group(random), lambda one: len(one[0]), vectors)
    assert_m_ant_mac(groups)
    return count
