"""The two engines, equal to the cycle on small cases of every kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilepress.simulate.deca import engine
from tilepress.simulate.deca.plan import UNITS, Leaves, Plan
from tilepress.simulate.deca.reference import Reference

TIMES = ("issue", "arrive", "start", "done", "product")
COUNTS = ("demanded", "prefetched", "dropped")


def plan(lines, cycles, trigger=None, walk=None, **changes):
    usual = {
        "line_time": UNITS,
        "ports": 2,
        "send": 0,
        "hit": 1,
        "latency": 0,
        "leaves": Leaves.issued,
        "misses": 1000,
        "queue": 0,
        "switch": 0,
        "depth": 0,
        "back": 0,
        "matrix": 1,
        "serial": False,
        "store": 0,
    }
    lines, cycles = np.atleast_2d(lines), np.atleast_2d(cycles)
    trigger = np.full(lines.shape, -1) if trigger is None else np.atleast_2d(trigger)
    walk = np.zeros_like(lines) if walk is None else np.atleast_2d(walk)
    return Plan(lines, cycles, trigger, walk, **usual | changes)


@st.composite
def plans(draw):
    cores, tiles = draw(st.integers(1, 3)), draw(st.integers(1, 14))
    shape = (cores, tiles)

    def array(low, high):
        values = st.lists(st.integers(low, high), min_size=cores * tiles, max_size=cores * tiles)
        return np.array(draw(values)).reshape(shape)

    ahead = draw(st.integers(1, 6))
    trigger = np.broadcast_to(np.maximum(np.arange(tiles) - ahead, 0), shape).copy()
    trigger[array(0, 4) == 0] = -1
    small = st.integers(0, 9)
    return plan(
        array(0, 5),
        array(1, 12),
        trigger,
        np.maximum(array(-20, 9), 0),
        line_time=draw(st.integers(1, 3 * UNITS)),
        ports=draw(st.integers(1, 4)),
        send=draw(small),
        hit=draw(st.integers(1, 9)),
        latency=draw(st.integers(0, 40)),
        leaves=draw(st.sampled_from(Leaves)),
        misses=draw(st.integers(1, 20)),
        queue=draw(st.integers(0, 20)),
        switch=draw(small),
        depth=draw(small),
        back=draw(small),
        matrix=draw(st.integers(1, 9)),
        serial=draw(st.booleans()),
        store=draw(small),
        flush_every=draw(st.integers(0, 4)),
        flush_time=draw(st.integers(1, 30)),
    )


@settings(max_examples=100, deadline=None)
@given(plans())
def test_equal_to_the_cycle(made):
    slow, fast = Reference(made).run(), engine.run(made)
    for name in TIMES:
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    assert [getattr(fast, name) for name in COUNTS] == [getattr(slow, name) for name in COUNTS]


@settings(max_examples=40, deadline=None)
@given(plans())
def test_no_engine_does_two_things_at_once(made):
    trace = engine.run(made)
    busy = trace.start + made.cycles + made.switch
    assert (trace.start[:, 1:] >= busy[:, :-1]).all()
    assert (np.diff(trace.product, axis=1) >= made.matrix).all()
    assert (trace.start >= np.maximum(trace.issue, trace.arrive) + made.hit + made.lines).all()
    if made.lines.shape[1] > made.ports:
        assert (trace.issue[:, made.ports :] >= trace.done[:, : -made.ports]).all()
    assert trace.cycles * UNITS >= int(made.lines.sum()) * made.line_time


def test_one_tile_by_hand():
    made = plan([3], [7], send=2, hit=14, latency=100, depth=3, back=5, matrix=16, line_time=UNITS // 2)
    trace = engine.run(made)
    assert trace.issue[0, 0] == 2 and trace.arrive[0, 0] == 2 + 2 + 100  # three halves of a cycle end in the second
    assert trace.start[0, 0] == 104 + 14 + 3 and trace.done[0, 0] == 121 + 7 + 3 + 5 and trace.cycles == 136 + 16


def test_a_prefetch_hides_the_latency():
    lines, cycles = np.ones((1, 50), int), np.full((1, 50), 4)
    late = engine.run(plan(lines, cycles, latency=100))
    ahead = engine.run(plan(lines, cycles, np.maximum(np.arange(50) - 40, 0), latency=100))
    assert late.demanded == 50 and ahead.prefetched == 48
    assert ahead.cycles < 0.5 * late.cycles


def test_prefetches_wait_for_room_in_line_and_are_dropped_beyond_it():
    lines, cycles, ahead = np.full((1, 30), 2), np.full((1, 30), 4), np.maximum(np.arange(30) - 12, 0)
    result = [engine.run(plan(lines, cycles, ahead, latency=60, misses=6, queue=more)) for more in (0, 8, 1000)]
    assert [one.dropped > 0 for one in result] == [True, True, False]
    assert result[0].prefetched < result[1].prefetched < result[2].prefetched == 56
    assert all(one.demanded + one.prefetched == 60 for one in result)


def test_a_new_page_makes_a_prefetch_late_and_a_demand_later():
    lines, cycles, walk = np.ones((1, 9), int), np.full((1, 9), 4), np.where(np.arange(9) == 6, 40, 0)
    asked = engine.run(plan(lines, cycles, walk=walk, latency=10))
    assert asked.arrive[0, 6] == asked.issue[0, 6] + 1 + 10 + 40
    ahead = np.maximum(np.arange(9) - 3, 0)
    assert engine.run(plan(lines, cycles, ahead, latency=10)).prefetched == 7
    late = engine.run(plan(lines, cycles, ahead, walk, latency=10))
    assert late.prefetched == 6 and late.arrive[0, 6] == late.issue[0, 6] + 1 + 10 + 40


def test_serial_invocation_costs_what_it_exposes():
    lines, cycles = np.ones((1, 40), int), np.full((1, 40), 2)
    free = engine.run(plan(lines, cycles, back=3, matrix=16))
    serial = engine.run(plan(lines, cycles, back=3, matrix=16, serial=True, store=6))
    assert serial.cycles / 40 == pytest.approx(16 + 3 + 6, rel=0.05) and free.cycles / 40 == pytest.approx(16, rel=0.05)


@settings(max_examples=40, deadline=None)
@given(plans())
def test_no_plan_takes_longer_than_is_thought_possible(made):
    assert engine.run(made).cycles <= engine.longest(made)


def test_plans_that_are_none():
    for lines, cycles, message in (
        ([], [], "and some"),
        ([1], [0], "at least a cycle"),
        ([-1], [1], "at least a cycle"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(lines, cycles)
    for changes in ({"walk": [-1]}, {"queue": -1}, {"misses": -1}):
        with pytest.raises(ValueError, match="are not negative"):
            plan([1], [1], **changes)
    with pytest.raises(ValueError, match="in the cycle in which it is asked for"):
        plan([1], [1], hit=0)
    with pytest.raises(ValueError, match="more cycles than can be counted"):
        engine.run(plan([1 << 20], [1], line_time=UNITS << 12))
