"""Whole tasks: what is counted, what goes where, and what it costs."""

from dataclasses import replace

import pytest

from tilepress.hardware import MachineError, read_accelerator
from tilepress.simulate.arrays import FITTED, Gemm, Product, Task, engine, simulate
from tilepress.simulate.arrays.costs import ARRAY, AUXILIARY, area, auxiliary, fitted_to_area, unit_area
from tilepress.simulate.arrays.plan import pinned_plan
from tilepress.simulate.arrays.workload import Operand, gemms
from tilepress.simulate.layers import find_transformer

ANDA, HARMONIA, FP = (read_accelerator(name) for name in ("anda", "harmonia", "fp-fp"))
LLAMA = find_transformer("llama-7b")
GROUPED = find_transformer("llama3.2-3b")


def products(task, machine):
    return {one.name: one for one in gemms(task, machine)}


def test_prefill_counts_every_product_once():
    task = Task(LLAMA, tokens=100)
    total = sum(one.products for one in gemms(task, ANDA))
    assert total == 100 * 32 * sum(LLAMA.products) + 32 * 2 * 100 * 100 * 4096


def test_decoding_has_one_row_and_reads_the_whole_cache():
    by_name = products(Task(LLAMA, "decode", tokens=500, batch=3), ANDA)
    assert by_name["q"].rows == 3 and by_name["scores"].rows == 1
    assert by_name["scores"].columns == 500 and by_name["scores"].count == 32 * 32 * 3


def test_heads_that_share_keys_come_together():
    scores = products(Task(GROUPED, tokens=64), ANDA)["scores"]
    assert (scores.rows, scores.inputs, scores.columns, scores.count) == (3 * 64, 128, 64, 28 * 8)


def test_a_tuple_gives_each_tensor_type_its_mantissa():
    by_name = products(Task(LLAMA, activations="anda:9,7,6,5"), ANDA)
    assert [by_name[name].activations.mantissa for name in ("q", "v", "o", "gate", "up", "down")] == [9, 9, 7, 6, 6, 5]
    assert [by_name[name].out.bits for name in ("up", "q", "gate")] == [1 + 5 + 5 / 64, 16, 0]


def test_harmonia_keeps_first_and_last_tokens_at_eight_bits():
    by_name = products(Task(LLAMA, tokens=4096), HARMONIA)
    wide, narrow = by_name["scores (first and last tokens)"], by_name["scores"]
    assert (wide.columns, wide.other.mantissa) == (96, 8) and (narrow.columns, narrow.other.mantissa) == (4000, 4)
    bits = (96 * wide.other.bits + 4000 * narrow.other.bits) / 4096
    assert 16 / bits == pytest.approx(3.05, abs=0.01)  # section III-B
    assert by_name["k"].out.bits == by_name["v"].out.bits == pytest.approx(bits) and by_name["q"].out.bits == 9 + 5 / 32


def test_long_values_are_summed_in_chunks_and_written_once():
    task = Task(LLAMA, tokens=10_000)
    values = [one for one in gemms(task, ANDA) if one.name == "values"]
    assert sum(one.inputs * one.count for one in values) == 10_000 * 32 * 32
    written = sum(one.rows * one.columns * one.count * one.out.bits for one in values)
    assert written == pytest.approx(10_000 * 4096 * 32 * 16)


def test_time_of_bit_serial_units_follows_the_mantissa():
    short, long = (
        simulate(ANDA, Task(LLAMA, activations=f"bfp:g64:m{bits}", scope="linear", products_only=True)).cycles
        for bits in (4, 9)
    )
    assert long / short == pytest.approx(10 / 5, rel=0.001)


@pytest.mark.parametrize("name", ["tender", "m-ant"])
def test_int8_machines_quantise_what_the_next_layer_takes(name):
    by_name = products(Task(LLAMA, tokens=64), read_accelerator(name))
    converted = {one.name for one in by_name.values() if one.is_converted}
    assert converted == {"o", "up", "down"}
    result = simulate(read_accelerator(name), Task(LLAMA, tokens=64, scope="linear"))
    assert result.energy["converter"] > 0
    hidden = simulate(read_accelerator(name), Task(LLAMA, tokens=64, scope="linear", products_only=True))
    assert hidden.seconds < result.seconds and hidden.energy["converter"] == result.energy["converter"]


def test_utilisation_counts_units_at_work():
    # One row of 16: at most a sixteenth, however long the array is busy.
    decode = simulate(ANDA, Task(LLAMA, "decode", 64, scope="linear", products_only=True))
    assert 0.9 / 16 < decode.utilisation <= 1 / 16
    full = simulate(ANDA, Task(LLAMA, "decode", 64, batch=16, scope="linear", products_only=True))
    assert full.utilisation == pytest.approx(16 * decode.utilisation, rel=0.05)


def test_utilisation_of_one_product_by_hand():
    # 20 × 24 outputs of 100 inputs: two groups of 64, 9 cycles each; 256 units.
    gemm = Gemm("any", 20, 100, 24, 3, Operand("bfp", 9, 8), Operand("int4", 4), Operand("fp16", 0.0))
    plan = pinned_plan(ANDA, gemm)
    product = Product(plan, engine.run(plan), {})
    assert product.unit_cycles == 3 * 20 * 24 * 2 * 9
    assert product.times.array == 2 * 2 * 2 * 9  # passes of the array, groups, cycles
    assert product.utilisation == product.unit_cycles / (256 * 3 * product.times.total)


def test_attention_goes_to_the_auxiliary_array_where_there_is_one():
    task = Task(LLAMA, tokens=256)
    result = simulate(ANDA, task)
    machines = {one.plan.gemm.name: one.plan.machine.name for one in result.products}
    assert machines["q"] == "anda" and machines["scores"] == "anda's auxiliary"
    assert AUXILIARY in result.area and AUXILIARY not in simulate(ANDA, replace(task, scope="linear")).area
    beside = auxiliary(ANDA)
    assert beside.units * unit_area(beside) <= ANDA.units * unit_area(ANDA)
    assert {one.plan.machine.name for one in simulate(FP, task).products} == {"fp-fp"}


def test_impossible_pairs_are_refused():
    with pytest.raises(MachineError, match="anda attends with FP16 and cannot multiply fp16 × bfp m4"):
        simulate(ANDA, Task(LLAMA, tokens=8, kv="bfp4"))
    with pytest.raises(MachineError, match="harmonia cannot multiply bfp m12 × int4"):
        simulate(HARMONIA, Task(LLAMA, tokens=8, activations="bfp:g32:m12"))
    with pytest.raises(MachineError, match="arrays multiply weights of int4 or int8, not mxfp4"):
        simulate(ANDA, Task(LLAMA, tokens=8, weights="mxfp4"))
    with pytest.raises(MachineError, match="anda cannot multiply bfp m8 × int8"):
        simulate(ANDA, Task(LLAMA, tokens=8, weights="int8:row"))
    with pytest.raises(MachineError, match="arrays read dense keys"):
        simulate(FP, Task(LLAMA, tokens=8, kv="sparse:k30,v50"))
    with pytest.raises(MachineError, match="fp says no mantissas"):
        simulate(ANDA, Task(LLAMA, tokens=8, activations="fp"))
    assert simulate(FP, Task(LLAMA, tokens=8, activations="fp")).cycles


@pytest.mark.parametrize("sizes", [{"tokens": 0}, {"tokens": -1}, {"batch": 0}])
def test_tokens_and_sequences_are_positive(sizes):
    with pytest.raises(ValueError, match="at least one token and one sequence"):
        Task(LLAMA, **sizes)


def test_equal_areas():
    room = 10 * unit_area(FP)
    machine = fitted_to_area(FP, room)
    assert 8 <= machine.units <= 10
    with pytest.raises(ValueError, match=r"no unit of fp-fp .* fits"):
        fitted_to_area(FP, 1e-9)


def test_costs_fall_with_the_node():
    small = ANDA.changed(node=7, voltage=0.7)
    assert area(small)[ARRAY] == pytest.approx(area(ANDA)[ARRAY] * 0.059 / 0.19)
    before, after = (simulate(one, Task(LLAMA, tokens=64)).breakdown for one in (ANDA, small))
    assert after["compute"] < before["compute"] and after["DRAM"] == before["DRAM"]


def test_fitted_constants_say_what_they_were_fitted_to():
    assert all(one.value > 0 and one.cells for one in FITTED.values())
    assert {one.tile.rows for one in (ANDA, HARMONIA, FP)} == {FITTED["tile"].value}


def test_every_machine_does_what_it_can():
    from tilepress.hardware import accelerator_names

    for name in accelerator_names():
        result = simulate(read_accelerator(name), Task(GROUPED, tokens=128))
        assert result.seconds > 0 and 0 < result.utilisation <= 1 and all(result.breakdown.values())
        assert {one.bound for one in result.products} <= {"memory", "array", "outputs"}
