"""The two engines, equal to the cycle on small cases of every kind; and cases by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.simulate.deca.plans import plan, plans, vop_plan
from tilepress.simulate.deca import engine
from tilepress.simulate.deca.plan import COUNTS, TIMES, Stage
from tilepress.simulate.deca.reference import Reference
from tilepress.simulate.deca.units import UNITS


def assert_equal_runs(made):
    slow, fast = Reference(made).run(), engine.run(made)
    for name in TIMES:
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    assert [getattr(fast, name) for name in COUNTS] == [getattr(slow, name) for name in COUNTS]
    return fast


@settings(max_examples=60)
@given(plans())
def test_equal_to_the_cycle(made):
    assert_equal_runs(made)


@settings(max_examples=40)
@given(plans())
def test_no_part_does_two_things_at_once_and_no_plan_takes_longer_than_is_thought_possible(made):
    trace = engine.run(made)
    assert (trace.start[:, 1:] >= trace.end[:, :-1] + made.switch).all()
    assert (trace.end - trace.start >= made.cycles).all()
    assert (np.diff(trace.product, axis=1) >= made.matrix).all()
    assert (np.diff(trace.dispatch, axis=1) >= made.dispatch).all()
    for room in (made.registers, made.window):
        assert (trace.dispatch[:, room:] > trace.product[:, :-room]).all()
    commit = np.maximum(trace.done[:, 1:], trace.product[:, :-1])
    assert (trace.dispatch[:, made.queue + 1 :] > commit[:, : -made.queue]).all()
    assert (trace.issue[:, made.ports :] >= trace.done[:, : -made.ports]).all()
    assert trace.cycles <= engine.longest(made)


def test_one_tile_by_hand():
    made = plan([3], [7], send=2, hit=14, latency=100, depth=2, back=5, matrix=16, line_time=UNITS // 2)
    trace = engine.run(made)
    assert trace.dispatch[0, 0] == 0 and trace.issue[0, 0] == 2
    assert trace.arrive[0, 0] == 2 + 2 + 100  # three halves of a cycle end in the second
    # The first two lines come 100 cycles after half a cycle and a whole one: both at 103. One line is loaded a cycle.
    assert trace.start[0, 0] == 103 + 14 + 3 and trace.end[0, 0] == 120 + 7
    assert trace.done[0, 0] == 127 + 2 + 5 and trace.cycles == 134 + 16


def test_a_vector_operation_starts_when_its_own_lines_have_come():
    lines = {"latency": 10, "hit": 4, "line_time": 20 * UNITS}  # one line every 20 cycles
    trace = engine.run(vop_plan([[[1, 1, 2]]], [[[3, 3, 3]]], **lines))
    assert trace.arrive[0, 0] == 40 + 10
    assert trace.start[0, 0] == 20 + 10 + 4 + 1 and trace.end[0, 0] == 40 + 10 + 4 + 1 + 3
    whole = engine.run(plan([2], [9], **lines))
    assert whole.start[0, 0] == 55 and whole.end[0, 0] == 64


def test_bitmask_and_scales_come_first_and_all_operations_wait_for_them():
    side = np.array([[2]])
    trace = engine.run(vop_plan([[[0, 1]]], [[[1, 1]]], side=side, side_new=side, hit=1, line_time=10 * UNITS))
    assert trace.start[0, 0] == 20 + 1 + 2  # an operation without codes waits for the second side line
    assert trace.end[0, 0] == 30 + 1 + 1 + 1


def test_bubbles_hold_the_first_stage_only():
    trace = engine.run(vop_plan([[[1, 1, 1]]], [[[4, 1, 2]]], depth=2))
    assert trace.end[0, 0] - trace.start[0, 0] == 7 and trace.done[0, 0] == trace.end[0, 0] + 2


def test_a_line_of_codes_that_two_tiles_share_is_asked_for_once():
    shared = np.array([[0, 1]])
    trace = assert_equal_runs(vop_plan([[[2], [2]]], [[[1], [1]]], shared=shared, latency=30, ports=2))
    assert trace.demanded == 3 and trace.start[0, 1] > trace.arrive[0, 0]


def test_a_prefetch_hides_the_latency():
    lines, cycles = np.ones((1, 50), int), np.full((1, 50), 4)
    late = engine.run(plan(lines, cycles, latency=100))
    ahead = engine.run(plan(lines, cycles, np.maximum(np.arange(50) - 40, 0), latency=100))
    assert late.demanded == 50 and ahead.prefetched == 49
    assert ahead.cycles < 0.5 * late.cycles


def test_prefetches_wait_for_room_in_line_and_are_dropped_beyond_it():
    lines, cycles, ahead = np.full((1, 30), 2), np.full((1, 30), 4), np.maximum(np.arange(30) - 12, 0)
    result = [engine.run(plan(lines, cycles, ahead, latency=60, misses=6, waiting=more)) for more in (0, 8, 1000)]
    assert [one.dropped > 0 for one in result] == [True, True, False]
    assert result[0].prefetched < result[1].prefetched < result[2].prefetched == 58
    assert all(one.demanded + one.prefetched == 60 for one in result)


def test_a_new_page_makes_a_prefetch_late_and_a_demand_later():
    lines, cycles, walk = np.ones((1, 9), int), np.full((1, 9), 4), np.where(np.arange(9) == 6, 40, 0)
    asked = engine.run(plan(lines, cycles, walk=walk, latency=10))
    assert asked.arrive[0, 6] == asked.issue[0, 6] + 1 + 10 + 40
    ahead = np.maximum(np.arange(9) - 3, 0)
    assert engine.run(plan(lines, cycles, ahead, latency=10)).prefetched == 8
    late = engine.run(plan(lines, cycles, ahead, walk, latency=10))
    assert late.prefetched == 7 and late.arrive[0, 6] == late.issue[0, 6] + 1 + 10 + 40


def test_serial_invocation_costs_what_it_exposes():
    lines, cycles = np.ones((1, 40), int), np.full((1, 40), 2)
    free = engine.run(plan(lines, cycles, back=3, matrix=16))
    serial = engine.run(plan(lines, cycles, back=3, matrix=16, serial=True, store=6))
    assert serial.cycles / 40 == pytest.approx(16 + 3 + 6, rel=0.05) and free.cycles / 40 == pytest.approx(16, rel=0.05)


def per_tile(**changes):
    lines, cycles = np.ones((1, 200), int), np.tile([2, 2, 2, 40], 50)[None]
    return engine.run(plan(lines, cycles, back=3, send=3, hit=4, matrix=16, dispatch=2, **changes)).cycles / 200


@pytest.mark.parametrize("resource", ["queue", "registers", "window"])
def test_few_entries_bind_and_more_help_until_they_do_not(resource):
    times = [per_tile(**{resource: count}) for count in (1, 2, 3, 8, 64)]
    assert times == sorted(times, reverse=True) and len(set(times[:4])) == 4 and times[4] == times[3]


def test_one_entry_is_free_in_the_cycle_after_its_call_commits():
    trace = engine.run(plan([1, 1, 1], [1, 1, 1], matrix=50, queue=1))
    assert trace.dispatch[0, 1] == trace.done[0, 0] + 1
    assert trace.dispatch[0, 2] == trace.product[0, 0] + 1  # the call before it commits after that product
    for resource in ("registers", "window"):
        trace = engine.run(plan([1, 1], [1, 1], matrix=50, **{resource: 1}))
        assert trace.dispatch[0, 1] == trace.product[0, 0] + 1


def test_the_last_level_keeps_so_many_misses():
    trace = engine.run(plan([4], [1], latency=100, llc_misses=2))
    assert trace.arrive[0, 0] == 203  # two at 101 and 102, two more 101 after those
    assert engine.run(plan([4], [1], latency=100, llc_misses=4)).arrive[0, 0] == 104


def activations(llc_lines=1000, cores=2, **changes):
    tiles = 4
    lines, cycles = np.ones((cores, tiles), int), np.full((cores, tiles), 4)
    some = {"activations": 4, "activation_lines": 3, "llc_lines": llc_lines, "llc_latency": 7, "latency": 50}
    return assert_equal_runs(plan(lines, cycles, **some | changes))


def test_activations_come_from_memory_once_and_then_from_the_last_level():
    trace = activations()
    assert trace.activations_demanded == 2 * 4 * 3 and trace.activations_fetched == 4 * 3
    assert activations(llc_lines=0).activations_fetched == (4 + 2) * 3  # weights have come between: from memory again
    ahead = activations(activation_trigger=[-1, 0, 1, 2])
    assert ahead.activations_prefetched == 2 * 3 * 3 and ahead.activations_demanded == 2 * 3


def test_a_product_waits_for_its_activations():
    trace = engine.run(plan([0], [1], activations=1, activation_lines=8, hit=2, latency=50, matrix=16))
    assert trace.product[0, 0] == 8 + 50 + 2 + 16 > trace.done[0, 0] + 16


def squashed(flush_after, **changes):
    lines, cycles = np.full((1, 12), 2), np.full((1, 12), 9)
    made = plan(lines, cycles, send=5, hit=6, latency=20, depth=4, back=8, matrix=30, **changes)
    calm = engine.run(made)
    return calm, assert_equal_runs(replace(made, flush_every=4, flush_after=flush_after, flush_time=14))


@pytest.mark.parametrize(
    "flush_after, stage",
    [
        (3, Stage.queue),
        (20, Stage.queue),
        (80, Stage.loader),
        (100, Stage.pipeline),
        (112, Stage.output),
        (140, Stage.finished),
    ],
)
def test_calls_are_squashed_in_every_stage_and_none_is_lost_or_doubled(flush_after, stage):
    calm, flushed = squashed(flush_after)
    assert flushed.squashed[stage] > 0
    assert (flushed.demanded, flushed.prefetched) == (calm.demanded, calm.prefetched) == (24, 0)  # asked for once
    assert (flushed.product > 0).all() and (np.diff(flushed.product) >= 30).all()  # multiplied once, in order
    assert ((flushed.end - flushed.start) >= 9).all()
    assert flushed.done[0, 3] > calm.done[0, 3] or stage == Stage.queue  # where it would have waited anyway
    again = flushed.dispatch[0, 3]  # the tile after the branch starts anew, after the squash and the penalty
    assert again >= calm.dispatch[0, 3] + flush_after + 14 and (np.diff(flushed.dispatch) >= 1).all()


def test_a_squashed_product_has_kept_the_matrix_unit_busy():
    calm, flushed = squashed(140)
    assert flushed.squashed[Stage.finished] >= 3
    assert flushed.cycles >= calm.cycles + 3 * 14


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"walk": [-1]}, "are not negative"),
        ({"waiting": -1}, "are not negative"),
        ({"misses": -1}, "are not negative"),
        ({"queue": 0}, "at least 1"),
        ({"registers": 0}, "at least 1"),
        ({"llc_misses": 0}, "at least 1"),
        ({"hit": 0}, "in the cycle in which it is asked for"),
        ({"loader_lines": 0}, "a loader has room for 0 lines"),
        ({"activations": 2}, "activations are of its tiles"),
        ({"flush_every": 2}, "a squash takes time"),
        ({"flush_every": 2, "flush_after": 1, "flush_time": 1, "serial": True}, "never squashed"),
    ],
)
def test_plans_that_are_none(changes, message):
    with pytest.raises(ValueError, match=message):
        plan([1], [1], **changes)


def test_tiles_that_are_none():
    for lines, cycles, message in (([], [], "and some"), ([1], [0], "at least a cycle"), ([-1], [1], "new lines")):
        with pytest.raises(ValueError, match=message):
            plan(lines, cycles)
    with pytest.raises(ValueError, match="is not set off by an earlier one"):
        plan([1, 1, 1], [1, 1, 1], trigger=[0, 1, 0])
    with pytest.raises(ValueError, match="more cycles than can be counted"):
        engine.run(plan([32], [1], line_time=UNITS << 30))


def test_an_event_is_one_number_without_overlaps():
    """As many cores and tiles as errors speak of; what is beside the time takes 33 bits of 63."""
    assert (engine.MOST_CORES, engine.MOST_TILES) == (1024, 2097152)
    assert engine._TIME_SHIFT == 33 and engine.MOST_CORES * engine.MOST_TILES * 4 == 1 << 33
