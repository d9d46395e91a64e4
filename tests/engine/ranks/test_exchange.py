"""Sums over ranks: in their order, to the bit; and what happens where one does not come."""

import math
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.engine.ranks.threads import exchanges

from tilepress import _native

SLOT = 1 << 16  # floats that are exchanged at a time


def values_of(ranks, count):
    """Of such different sizes that another order of additions gives other bits."""
    drawn = np.random.default_rng(0)
    return (drawn.standard_normal((ranks, count)) * 10.0 ** drawn.integers(-3, 4, (ranks, count))).astype(np.float32)


def in_threads(work, items):
    with ThreadPoolExecutor(len(items)) as threads:
        return list(threads.map(work, items))


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_sums_in_the_ranks_order(ranks):
    ends = exchanges(ranks)
    for count in (1, 576, 4096, SLOT, 2 * SLOT + 3, 0, 7):
        given = values_of(ranks, count)
        expected = given[0].copy()
        for more in given[1:]:
            expected += more
        own = [row.copy() for row in given]
        in_threads(lambda rank, own=own: ends[rank].add_up(own[rank], 2), range(ranks))
        assert all(np.array_equal(row, expected) for row in own)


def test_the_order_of_ranks_can_be_seen_in_sums():
    one, two, three = values_of(3, 4096)
    assert not np.array_equal(one + two + three, three + two + one)


def test_many_turns_at_any_speed():
    """A rank that is late reads what was written for it, and not what comes two turns later."""
    ends, turns = exchanges(3), 2000

    def add(rank):
        sums = np.array([10.0**rank], np.float32)
        seen = []
        for turn in range(turns):
            sums[:] = turn + rank
            ends[rank].add_up(sums, 1)
            seen.append(sums[0])
        return seen

    assert in_threads(add, range(3)) == [[3.0 * turn + 3 for turn in range(turns)]] * 3


def test_one_that_fails_ends_all():
    ends = exchanges(3)

    def add(rank):
        return ends[rank].fail() if rank == 1 else ends[rank].add_up(np.ones(5, np.float32), 1)

    with pytest.raises(RuntimeError, match="rank 1 has failed, or its process has ended"):
        in_threads(add, range(3))
    with pytest.raises(RuntimeError, match="rank 1 has failed"):
        ends[2].add_up(np.ones(5, np.float32), 1)


def test_one_that_does_not_come_is_named():
    """By rank 0, which alone runs out of patience; then the others know."""
    ends = exchanges(4, patience=0.1)
    errors = in_threads(lambda rank: failure(ends[rank]), [0, 1, 3])
    assert errors == ["rank 2 does not answer: it hangs", *["rank 2 has failed, or its process has ended"] * 2]


def failure(end):
    with pytest.raises(RuntimeError) as caught:
        end.add_up(np.ones(5, np.float32), 1)
    return str(caught.value)


def test_ranks_at_different_steps():
    ends = exchanges(2)
    with pytest.raises(RuntimeError, match=r"rank \d is at another step|rank \d has failed"):
        in_threads(lambda rank: ends[rank].add_up(np.ones(5 + rank, np.float32), 1), range(2))


def test_one_whose_socket_has_ended():
    memory = np.zeros(_native.Exchange.bytes(2) + 4096, np.uint8)
    start = -memory.ctypes.data % 4096
    own, other = socket.socketpair()
    end = _native.Exchange(memory[start : start + _native.Exchange.bytes(2)], 0, [-1, own.fileno()], math.inf)
    other.close()
    with pytest.raises(RuntimeError, match="rank 1 has failed, or its process has ended"):
        end.add_up(np.ones(5, np.float32), 1)
    own.close()


def test_memory_and_ranks_that_do_not_fit():
    memory = np.zeros(_native.Exchange.bytes(2) + 8192, np.uint8)
    start = -memory.ctypes.data % 4096
    fitting = memory[start : start + _native.Exchange.bytes(2)]
    with pytest.raises(ValueError, match="the ranks' memory has another size"):
        _native.Exchange(fitting[:-1], 0, [-1, -1], math.inf)
    with pytest.raises(ValueError, match="the ranks' memory starts at a page"):
        _native.Exchange(memory[start + 64 : start + 64 + len(fitting)], 0, [-1, -1], math.inf)
    with pytest.raises(ValueError, match="ranks are 0 … 1"):
        _native.Exchange(fitting, 2, [-1, -1], math.inf)
    for patience in (-1.0, math.nan):
        with pytest.raises(ValueError, match="patience is 0 s or more"):
            _native.Exchange(fitting, 0, [-1, -1], patience)
    for count in (0, -1, 1025):
        with pytest.raises(ValueError, match="there are 1 … 1024 ranks"):
            _native.Exchange.bytes(count)
    with pytest.raises(ValueError, match="at least one thread"):
        _native.Exchange(fitting, 0, [-1, -1], math.inf).add_up(np.ones(1, np.float32), 0)
