"""Energy and area, counted again one by one."""

import math

import pytest

from tilepress.hardware import read_accelerator
from tilepress.hardware.technology import PARTS, energy_scale
from tilepress.simulate.arrays import FITTED, Gemm
from tilepress.simulate.arrays.costs import (
    ACTIVATIONS,
    ARRAY,
    CONVERTER,
    DRAM,
    WEIGHTS,
    area,
    breakdown,
    energy,
    group_energy,
    sram_bits,
    unit_area,
)
from tilepress.simulate.arrays.plan import pinned_plan
from tilepress.simulate.arrays.workload import Operand

ANDA, HARMONIA = read_accelerator("anda"), read_accelerator("harmonia")
GEMM = Gemm("any", 50, 200, 70, 3, Operand("bfp", 8.0, 7), Operand("int4", 4.0), Operand("bfp", 9.0, 8))


@pytest.mark.parametrize("machine", [ANDA, HARMONIA], ids=lambda machine: machine.name)
@pytest.mark.parametrize("order", ["column-major", "row-major"])
def test_sram_bits_are_those_of_every_pass(machine, order):
    plan = pinned_plan(machine.changed(tile={"rows": 16, "columns": 32}), GEMM, order)
    array, reads = machine.array, {ACTIVATIONS: 0.0, WEIGHTS: 0.0}
    for row in range(0, GEMM.rows, array.rows):
        for column in range(0, GEMM.columns, array.columns):
            rows, columns = min(array.rows, GEMM.rows - row), min(array.columns, GEMM.columns - column)
            reads[ACTIVATIONS] += rows * GEMM.inputs * 8.0
            reads[WEIGHTS] += columns * GEMM.inputs * 4.0
    filled = {ACTIVATIONS: plan.traffic.activations, WEIGHTS: plan.traffic.other}
    outputs = {ACTIVATIONS: 2 * GEMM.rows * GEMM.columns * 9.0, WEIGHTS: 0.0}
    assert sram_bits(plan) == {name: reads[name] + filled[name] + outputs[name] for name in reads}


def test_energy_counts_groups_and_bits_and_repeats():
    plan = pinned_plan(ANDA, GEMM)
    parts = energy(plan)
    assert parts[ARRAY] == pytest.approx(3 * 50 * 70 * math.ceil(200 / 64) * group_energy(ANDA, ANDA.modes[0], 7))
    assert parts[DRAM] == pytest.approx(3 * plan.traffic.total * 3.9)
    assert parts[CONVERTER] > 0
    assert sum(breakdown(parts).values()) == pytest.approx(sum(parts.values()))


def test_shorter_mantissas_save_energy_and_storage():
    def parts(bits):
        gemm = Gemm("any", 64, 640, 64, 1, Operand("bfp", 1.0 + bits, bits), Operand("int4", 4.0), Operand("fp16", 9.0))
        return breakdown(energy(pinned_plan(ANDA, gemm)))

    short, long = parts(4), parts(8)
    assert all(short[part] < long[part] for part in short)


def test_area_is_that_of_all_units_and_memories():
    parts = area(ANDA)
    assert parts[ARRAY] == pytest.approx(256 * unit_area(ANDA))
    twice = ANDA.changed(buffers={"weights": 2 * ANDA.buffers.weights})
    assert area(twice)[WEIGHTS] == pytest.approx(2 * parts[WEIGHTS])
    counted = read_accelerator("fp-fp").changed(unit={"rtl": None})
    parts = counted.unit.cycle
    assert unit_area(counted) == pytest.approx(sum(count * PARTS[name].area for name, count in parts.items()) * 0.19e-6)


@pytest.mark.parametrize("name, parts", [("m-ant", {"flip_flop": 58, "fp16_multiply": 1, "add": 16}),
                                         ("tender", {"flip_flop": 24, "fp16_multiply": 1, "add": 8})])  # fmt: skip
def test_quantising_outputs_to_int8_takes_energy_and_time(name, parts):
    machine = read_accelerator(name)
    weights = Operand("int4" if name == "m-ant" else "int8", 8.0)

    def plan(out):
        return pinned_plan(machine, Gemm("any", 8, 32, 16, 2, Operand("int8", 8.0), weights, out))

    quantised, kept, halves = (plan(out) for out in (Operand("int8", 8.0), Operand("int8", 0.0), Operand("fp16", 16.0)))
    assert quantised.conversion(128) == 16 and kept.conversion(128) == halves.conversion(128) == 0
    switched = sum(count * PARTS[part].energy for part, count in parts.items())
    expected = 2 * 8 * 16 * switched * FITTED["logic_energy"].value * energy_scale(28, 0.9)
    assert energy(quantised)[CONVERTER] == pytest.approx(expected) and energy(halves)[CONVERTER] == 0
