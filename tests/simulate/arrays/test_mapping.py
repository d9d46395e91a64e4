"""The best mapping is that of a search which simulates all of them; pinned ones are in its space."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilepress.hardware import read_accelerator
from tilepress.simulate.arrays import BEST, PINNED, Gemm, Mapper, Task, engine, reference, simulate
from tilepress.simulate.arrays.costs import energy
from tilepress.simulate.arrays.mapping import OBJECTIVES, best_plan, score
from tilepress.simulate.arrays.plan import ORDERS, pinned_plan, tile_sizes
from tilepress.simulate.arrays.space import Space
from tilepress.simulate.arrays.workload import Operand
from tilepress.simulate.layers import find_transformer

MACHINES = {name: read_accelerator(name) for name in ("anda", "harmonia", "fp-fp", "m-ant")}
INT4 = Operand("int4", 4.125)
KINDS = {"bfp": Operand("bfp", 9.2, 7), "fp16": Operand("fp16", 16), "int8": Operand("int8", 8)}


@st.composite
def products(draw):
    machine = MACHINES[draw(st.sampled_from(sorted(MACHINES)))]
    machine = machine.changed(
        memory={"bandwidth": draw(st.sampled_from([3e8, 3e9, 256e9]))},
        array={"rows": draw(st.sampled_from([2, 8])), "columns": draw(st.sampled_from([4, 8]))},
        buffers={"activations": draw(st.integers(900, 4000)), "weights": draw(st.integers(400, 4000))},
        vector=draw(st.sampled_from([1, 64])),
    )
    rows, inputs, columns = draw(st.integers(1, 40)), draw(st.integers(1, 50)), draw(st.integers(1, 40))
    out = draw(st.sampled_from([Operand("fp16", 0.0), KINDS[machine.stores]]))
    operands = (KINDS[machine.stores], INT4, out)
    return machine, Gemm("any", rows, inputs, columns, draw(st.integers(1, 3)), *operands, hidden=draw(st.booleans()))


@settings(max_examples=60)
@given(products(), st.sampled_from(OBJECTIVES))
def test_the_best_mapping_is_that_of_a_search_through_all(product, objective):
    found, expected = best_plan(*product, objective), reference.best_plan(*product, objective)
    scores = [reference.plan_score(plan, objective) for plan in (found, expected)]
    assert scores[0] == pytest.approx(scores[1])


@settings(max_examples=60)
@given(products())
def test_a_space_says_of_all_mappings_what_is_said_of_each(product):
    space, plans = Space(*product), reference.mappings(*product)
    assert [space.plan(index) for index in range(len(space.energy))] == plans
    times = [engine.run(plan) for plan in plans]
    assert (space.loads + space.stores).tolist() == [one.memory for one in times]
    assert space.computes.tolist() == [one.array for one in times]
    assert space.posts.tolist() == [one.post for one in times]
    assert (space.least_time <= [one.total for one in times]).all()
    assert space.energy == pytest.approx(np.array([sum(energy(plan).values()) for plan in plans]))


@settings(max_examples=60)
@given(products())
def test_the_pinned_mapping_is_one_of_the_space(product):
    assert all(pinned_plan(*product, order) in reference.mappings(*product) for order in ORDERS)


def test_objectives():
    assert (score("time", 2.0, 3.0), score("energy", 2.0, 3.0), score("edp", 2.0, 3.0)) == ((2, 3), (3, 2), (6, 2))


def test_two_tiles_fit_a_buffer_or_one_of_a_single_pass():
    # A row is 64 × 9 bits = 72 bytes; two tiles of 4 passes of 16 rows are 9216 bytes.
    gemm = Gemm("any", 70, 64, 16, 1, Operand("bfp", 9, 8), INT4, Operand("fp16", 0.0))
    anda = MACHINES["anda"]

    def sizes(capacity):
        return tile_sizes("activations", anda.changed(buffers={"activations": capacity}), gemm)

    assert sizes(9216) == (16, 32, 48, 64) and sizes(9215) == (16, 32, 48)
    assert sizes(2 * 70 * 72) == (16, 32, 48, 64, 70) and sizes(16 * 72) == (16,)
    assert tile_sizes("weights", anda, gemm) == (16,)


@pytest.mark.parametrize("name", MACHINES)
def test_the_best_mapping_of_a_model_is_no_worse_than_the_pinned_one(name):
    task = Task(find_transformer("smollm2-135m"), tokens=256)
    pinned = simulate(MACHINES[name], task, PINNED)
    best = {objective: simulate(MACHINES[name], task, Mapper(objective)) for objective in OBJECTIVES}
    assert best["time"].cycles <= min(pinned.cycles, best["energy"].cycles, best["edp"].cycles)
    assert best["energy"].joules <= min(pinned.joules, best["time"].joules, best["edp"].joules) * (1 + 1e-12)
    assert best["energy"].joules < 0.9 * pinned.joules
    for one, other in zip(best["edp"].products, pinned.products, strict=True):
        assert one.cycles * one.joules <= other.cycles * other.joules * (1 + 1e-12)


def test_a_mapper_keeps_to_its_order_and_names_itself():
    task = Task(find_transformer("smollm2-135m"), tokens=64, scope="linear")
    for order in ORDERS:
        result = simulate(MACHINES["anda"], task, Mapper("energy", order))
        assert {one.plan.order for one in result.products} == {order}
    assert (PINNED.name, BEST.name, BEST.objective) == ("pinned", "best", "edp")
    assert simulate(MACHINES["anda"], task).cycles == simulate(MACHINES["anda"], task, BEST).cycles


def test_a_space_without_a_mapping_of_few_steps_is_refused():
    huge = Gemm("any", 10**7, 4096, 10**7, 1, KINDS["bfp"], INT4, Operand("fp16", 0.0))
    with pytest.raises(ValueError, match="steps are more than"):
        best_plan(MACHINES["anda"], huge)
