"""The two engines, equal to the cycle on small products of every kind."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilepress.hardware import read_accelerator
from tilepress.simulate.arrays import Gemm, engine
from tilepress.simulate.arrays.plan import ORDERS, pinned_plan
from tilepress.simulate.arrays.reference import Reference
from tilepress.simulate.arrays.workload import Operand

MACHINES = {name: read_accelerator(name) for name in ("anda", "harmonia", "fp-fp", "fp16-fp16")}
INT4, HALVES = Operand("int4", 4.125), Operand("fp16", 16.0)


@st.composite
def plans(draw):
    machine = MACHINES[draw(st.sampled_from(sorted(MACHINES)))]
    machine = machine.changed(
        memory={"bandwidth": draw(st.sampled_from([1e9, 3e9, 20e9, 256e9]))},
        tile={"rows": draw(st.sampled_from([8, 16, 40])), "columns": draw(st.sampled_from([16, 32, 100]))},
        vector=draw(st.sampled_from([1, 4, 64])),
    )
    if machine.converter:
        overlapped, values = draw(st.booleans()), draw(st.sampled_from([4, 64]))
        machine = machine.changed(converter={"overlapped": overlapped, "values": values})
    kind = Operand("bfp", 9.2, draw(st.integers(1, 8))) if machine.stores == "bfp" else Operand("fp16", 16)
    rows, inputs, columns = draw(st.integers(1, 70)), draw(st.integers(1, 90)), draw(st.integers(1, 150))
    out = draw(st.sampled_from([Operand("fp16", 0.0), Operand("bfp", 9.2, 8), Operand("fp16", 16.0)]))
    gemm = Gemm("any", rows, inputs, columns, 1, kind, INT4, out, draw(st.integers(1, 5)), draw(st.booleans()))
    return pinned_plan(machine, gemm, draw(st.sampled_from(ORDERS)))


@settings(max_examples=150)
@given(plans())
def test_both_engines_agree(plan):
    assert engine.run(plan) == Reference(plan).run()


@settings(max_examples=100)
@given(plans())
def test_time_is_between_its_longest_part_and_all_parts_in_turn(plan):
    times = engine.run(plan)
    parts = (times.memory, times.array, times.post)
    assert max(parts) <= times.total <= sum(parts) + plan.steps * plan.drain


def product(rows=64, inputs=64, columns=64, out=HALVES, **more):
    return Gemm("one", rows, inputs, columns, 1, Operand("bfp", 9, 7), INT4, out, **more)


def test_a_product_that_one_tile_holds_is_loaded_computed_drained_and_stored():
    plan = pinned_plan(MACHINES["anda"], product(hidden=True))
    (step,) = [plan.step(0, 0)]
    assert plan.steps == 1 and step.compute == 16 * 8  # 4 × 4 passes of one group, a sign and seven planes
    assert engine.run(plan).total == step.load + step.compute + plan.drain + step.store


def test_loading_hides_behind_computing():
    plan = pinned_plan(MACHINES["anda"], product(rows=640, inputs=6400, columns=640, hidden=True))
    times = engine.run(plan)
    assert times.memory > 1000 and times.total < 1.01 * times.array


def test_a_slow_memory_sets_the_time():
    slow = MACHINES["anda"].changed(memory={"bandwidth": 1e8})
    times = engine.run(pinned_plan(slow, product(rows=640, inputs=640, columns=640)))
    assert times.total == pytest.approx(times.memory, rel=0.01) and times.total > 5 * times.array


def test_a_converter_that_does_not_overlap_adds_its_time():
    machine, gemm = MACHINES["anda"], product(rows=320, columns=320, out=Operand("bfp", 16.0, 7))
    apart = machine.changed(converter={"overlapped": False})
    hidden, added = (engine.run(pinned_plan(one, gemm)) for one in (machine, apart))
    assert added.total >= hidden.total + 20 * hidden.post // 25


def test_too_many_steps_are_refused():
    plan = pinned_plan(MACHINES["anda"].changed(tile={"rows": 16, "columns": 16}), product(rows=10**6, columns=10**6))
    with pytest.raises(ValueError, match=r"steps are more than .*: take fewer tokens or larger tiles"):
        engine.run(plan)
