"""Constants of the simulation, each by a case small enough to work by hand."""

import math

import pytest

from tilepress.hardware import read_accelerator
from tilepress.hardware.technology import area_scale, energy_scale, sram_energy
from tilepress.simulate.arrays import FITTED, Gemm, Product, Result, Task, engine
from tilepress.simulate.arrays.compare import MATRIX_ROWS, WEIGHTS, Setting, compare
from tilepress.simulate.arrays.costs import (
    ACTIVATIONS,
    ARRAY,
    AUXILIARY,
    CONVERTER,
    DRAM,
    VECTOR,
    area,
    auxiliary,
    energy,
    fitted_to_area,
    traffic_energy,
    unit_area,
)
from tilepress.simulate.arrays.costs import WEIGHTS as WEIGHT_BUFFER
from tilepress.simulate.arrays.plan import Plan, pinned_plan
from tilepress.simulate.arrays.workload import Operand, gemms
from tilepress.simulate.layers import find_transformer

ANDA, HARMONIA, FP, FP_INT = (read_accelerator(name) for name in ("anda", "harmonia", "fp-fp", "fp-int"))
LLAMA = find_transformer("llama-7b")


def test_fitted_constants():
    values = {name: one.value for name, one in FITTED.items()}
    assert values == {
        "sram_density": 0.79,
        "sram_bank": 2**15,
        "tile": 64,
        "auxiliary_share": 1.0,
    }


def test_area_of_units_by_hand():
    """µm² at 7 nm; 0.19 / 0.059 times as much at 16 nm."""
    larger = 1e-6 * 0.19 / 0.059
    assert unit_area(ANDA) == pytest.approx(1267.68726 * larger)
    assert unit_area(FP) == pytest.approx(4 * 358.28892 * larger) and unit_area(HARMONIA) == pytest.approx(
        0.5 * 1618.84656e-6 * area_scale(28) / 0.059
    )
    assert unit_area(read_accelerator("m-ant").changed(node=16)) == pytest.approx(0.45 * 157.6827 * larger)


def test_area_of_all_else_by_hand():
    parts = area(ANDA, attention=True)
    assert parts[ARRAY] == pytest.approx(256 * unit_area(ANDA))
    assert parts[AUXILIARY] == pytest.approx(parts[ARRAY])
    assert parts[ACTIVATIONS] == pytest.approx(1.125 * 0.79) and parts[WEIGHT_BUFFER] == pytest.approx(0.79)
    assert parts[VECTOR] == pytest.approx(64 * 207.37134e-6 * 0.19 / 0.059)
    assert parts[CONVERTER] == pytest.approx(16 * 816.6987e-6 * 0.19 / 0.059)
    quantiser = 1133.79912e-6 * area_scale(28) / 0.059
    assert area(read_accelerator("m-ant"))[CONVERTER] == pytest.approx(quantiser)
    of_28 = 0.79 * area_scale(28) / 0.19
    assert area(HARMONIA)[WEIGHT_BUFFER] == pytest.approx(of_28)
    assert AUXILIARY not in area(ANDA) and AUXILIARY not in area(HARMONIA, attention=True)


def test_the_auxiliary_array_by_hand():
    """As many FP16 units as the array's area holds, rows a power of two."""
    beside, unit = auxiliary(ANDA), 207.37134e-6 * 0.19 / 0.059
    assert unit_area(beside) == pytest.approx(unit)
    units = int(256 * unit_area(ANDA) / unit)
    rows = 2 ** round(math.log2(math.sqrt(units)))
    assert beside.array.rows == rows and beside.array.columns == units // rows and beside.array.group == 1
    assert (beside.stores, beside.converter, beside.auxiliary) == ("fp16", None, None)
    assert beside.buffers == ANDA.buffers and beside.memory == ANDA.memory
    assert fitted_to_area(ANDA, 6.5 * unit_area(ANDA)).array.model_dump() == {"rows": 2, "columns": 3, "group": 64}
    assert fitted_to_area(ANDA, 1.5 * unit_area(ANDA)).array.model_dump() == {"rows": 1, "columns": 1, "group": 64}


def test_energy_of_a_product_by_hand():
    """FP-INT, 16 × 64 by 64 × 32, twice: 512 outputs of one group, two passes of the array."""
    gemm = Gemm("any", 16, 64, 32, 2, Operand("fp16", 16), Operand("int4", 4), Operand("fp16", 16), vector=3)
    parts, scale = energy(Plan(FP_INT, gemm, "column-major", 16, 32)), energy_scale(16, 0.8)
    in_cells = scale / energy_scale(7, 0.7)  # of 7 nm
    assert parts[ARRAY] == pytest.approx(2 * 512 * 64 * 0.5850305337928247 * in_cells)
    assert parts[VECTOR] == pytest.approx(2 * 512 * 3 * 0.3358079292873006 * in_cells) and parts[CONVERTER] == 0
    activations, weights, outputs = 16 * 64 * 16, 64 * 32 * 4, 512 * 16  # bits
    bit = 10 / 64 * 2 * scale  # of a bank four times 8 KB
    assert parts[ACTIVATIONS] == pytest.approx(2 * (2 * activations + activations + 2 * outputs) * bit)
    assert parts[WEIGHT_BUFFER] == pytest.approx(2 * (weights + weights) * bit)
    assert parts[DRAM] == pytest.approx(2 * (activations + weights + outputs) * 3.9)
    assert traffic_energy(FP_INT) == pytest.approx(3.9 + bit)


def test_times_of_a_step_by_hand():
    """FP-INT at 285 MHz, 256 GB/s: 898 bytes a cycle; 64 vector operations a cycle."""
    gemm = Gemm("any", 16, 640, 32, 1, Operand("fp16", 16), Operand("int4", 4), Operand("fp16", 16), vector=3)
    step = Plan(FP_INT, gemm, "column-major", 16, 32).step(0, 0)
    loaded, stored = 16 * 640 * 2 + 32 * 640 / 2, 16 * 32 * 2
    assert step.load == -(-loaded * 285e6 // 256e9) == 35 and step.store == -(-stored * 285e6 // 256e9) == 2
    assert (step.compute, step.post) == (2 * 10 * 16, 512 * 3 // 64)
    plan = Plan(FP_INT, gemm, "column-major", 16, 32)
    assert plan.drain == 16 + 16 - 2 and plan.conversion(512) == 0
    assert engine.run(plan) == engine.Times(35 + 320 + 30 + 24 + 2, 37, 320, 24)


def test_a_result_by_hand():
    gemm = Gemm("any", 16, 640, 32, 3, Operand("fp16", 16), Operand("int4", 4), Operand("fp16", 16), vector=3)
    plan = Plan(FP_INT, gemm, "column-major", 16, 32)
    result = Result(FP_INT, [Product(plan, engine.run(plan), energy(plan))], {"array": 1.5, "rest": 2.0})
    assert result.cycles == 3 * 411 and result.seconds == pytest.approx(3 * 411 / 285e6) and result.mm2 == 3.5
    assert result.operations == 2 * 3 * 16 * 640 * 32
    traffic = 3 * (16 * 640 * 2 + 32 * 640 / 2 + 16 * 32 * 2)  # bytes
    assert result.dram_bytes == traffic and result.energy[DRAM] == pytest.approx(traffic * 8 * 3.9e-12)
    assert result.products[0].joules == pytest.approx(result.joules) == pytest.approx(sum(result.breakdown.values()))
    assert result.watts == pytest.approx((result.joules - result.energy[DRAM]) / result.seconds)
    assert result.utilisation == pytest.approx(320 / 411)


def test_the_engine_takes_no_more_steps_than_its_most():
    assert engine.MOST_STEPS == 50_000_000


def products(task, machine):
    return {one.name: one for one in gemms(task, machine)}


def test_numbers_as_tasks_have_them():
    plain = products(Task(LLAMA, tokens=5000), FP)
    assert plain["q"].activations == Operand("fp16", 16) and plain["q"].other == Operand("int4", 4 + 16 / 128)
    assert plain["q"].out.bits == plain["k"].out.bits == plain["scores"].out.bits == 16
    assert (plain["q"].vector, plain["scores"].vector, plain["values"].vector) == (1, 5, 2)
    tender = products(Task(LLAMA, tokens=8), read_accelerator("tender"))
    assert tender["q"].activations == tender["q"].other == tender["up"].out == Operand("int8", 8)
    values = [one.inputs for one in gemms(Task(LLAMA, tokens=9000), FP) if one.name == "values"]
    assert values == [4096, 808]
    assert products(Task(LLAMA), FP)["q"].rows == 2048 and len(products(Task(LLAMA), FP)) == 9
    whole = products(Task(LLAMA, tokens=8, head=True), FP)
    assert whole["head"].columns == LLAMA.vocabulary and whole["head"].out.bits == 16 and whole["head"].count == 1
    assert [one.activations.mantissa for one in gemms(Task(LLAMA, scope="linear"), ANDA)] == [8] * 7


def test_numbers_of_harmonia():
    by_name = products(Task(LLAMA, tokens=1000), HARMONIA)
    assert by_name["scores"].other == Operand("bfp", 1 + 4 + 5 / 32, 4)
    assert by_name["scores (first and last tokens)"].other == Operand("bfp", 1 + 8 + 5 / 32, 8)
    assert by_name["scores"].activations == by_name["scores"].out == Operand("bfp", 1 + 8 + 5 / 32, 8)
    assert by_name["k"].out.kind == "bfp" and by_name["k"].out.mantissa == 4 and by_name["k"].is_converted
    written = sum(one.out.bits * one.count for one in by_name.values() if one.name.startswith("values"))
    assert written == pytest.approx((1 + 8 + 5 / 32) * 32 * 32)


def test_what_is_compared_by_default():
    assert vars(Setting()) == {
        "node": 16,
        "voltage": 0.8,
        "frequency": 285e6,
        "bandwidth": 256e9,
        "dram_energy": 3.9,
        "area": 0.41,
    }
    assert (WEIGHTS, MATRIX_ROWS) == (20_000_000, 16)


def test_what_a_cpu_reads_for_a_token_by_hand():
    """Weights of 4.125 bits and a cache of 16, once each, at 3.9 pJ a bit."""
    (figures,) = compare(["deca"], [Task(LLAMA, "decode", 100)])
    weights, cache = 32 * sum(LLAMA.products) * (4 + 16 / 128), 100 * 2 * 4096 * 32 * 16
    assert figures.dram_joules == pytest.approx((weights + cache) * 3.9e-12)


def test_pinned_tiles_are_the_nearest_whole_passes():
    gemm = Gemm("any", 1000, 64, 1000, 1, Operand("bfp", 9, 8), Operand("int4", 4), Operand("fp16", 0.0))
    sizes = {"rows": 40, "columns": 24}
    plan = pinned_plan(ANDA.changed(tile=sizes), gemm)
    assert (plan.rows, plan.columns) == (32, 32)  # round(2.5) passes, round(1.5)
    tiny = pinned_plan(ANDA.changed(tile={"rows": 1, "columns": 7}), gemm)
    assert (tiny.rows, tiny.columns) == (16, 16)


def test_scaling_by_hand():
    """Stillmaker and Baas: area factors, and a·V² + b·V + c over that of 45 nm at 0.9 V."""
    base = 1.018 * 0.81 - 0.3107 * 0.9 + 0.1539
    assert energy_scale(45, 0.7) == pytest.approx((1.018 * 0.49 - 0.3107 * 0.7 + 0.1539) / base)
    assert energy_scale(32, 0.9) == pytest.approx((0.8367 * 0.81 - 0.4341 * 0.9 + 0.1701) / base)
    assert energy_scale(16, 0.8) == pytest.approx((0.2958 * 0.64 - 0.1241 * 0.8 + 0.03024) / base)
    assert energy_scale(7, 0.7) == pytest.approx((0.1776 * 0.49 - 0.09097 * 0.7 + 0.02447) / base)
    assert [area_scale(node) for node in (45, 32, 20, 16, 7)] == pytest.approx([1, 0.46, 0.059 / 0.28, 0.19, 0.059])
    assert area_scale(28) / 0.46 == pytest.approx((0.059 / 0.28 / 0.46) ** (math.log(28 / 32) / math.log(20 / 32)))
    assert sram_energy(8192) == 10 / 64 and sram_energy(32768) == 2 * 10 / 64
