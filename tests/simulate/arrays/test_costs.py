"""Energy and area, counted again one by one."""

import math
from dataclasses import replace

import pytest

from tilepress.hardware import MachineError, read_accelerator
from tilepress.hardware.technology import area_scale, energy_scale
from tilepress.simulate.arrays import Gemm
from tilepress.simulate.arrays.costs import (
    ACTIVATIONS,
    ARRAY,
    CONVERTER,
    DRAM,
    GIVEN,
    OFFSETS,
    RTL,
    VECTOR,
    WEIGHTS,
    area,
    breakdown,
    energy,
    group_energy,
    in_technology,
    logic_of,
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


def test_costs_that_are_given():
    """Of a unit and of a converter from elsewhere: µm² and pJ at 16 nm and 0.8 V, Anda's own."""
    given = {"node": 16, "voltage": 0.8, "area": 2000.0, "energy": {"fixed": 0.05, "per_bit": 0.01}}
    machine = ANDA.changed(unit={"rtl": None, "given": given}, converter={"rtl": None, "given": given})
    assert logic_of(machine) == GIVEN and logic_of(ANDA) == RTL
    assert unit_area(machine) == pytest.approx(2000e-6) and area(machine)[CONVERTER] == pytest.approx(2000e-6)
    assert group_energy(machine, machine.modes[0], 7) == pytest.approx(64 * 0.12)
    assert energy(pinned_plan(machine, GEMM))[CONVERTER] == pytest.approx(3 * 50 * 70 * (0.05 + 8 * 0.01))
    smaller = in_technology(machine, 7, 0.7, 1e9)
    assert unit_area(smaller) == pytest.approx(2000e-6 * area_scale(7) / area_scale(16))


@pytest.mark.parametrize("name, group", [("anda", 64), ("harmonia", 32)])
def test_a_unit_that_sums_groups_of_its_own_size(name, group):
    machine = read_accelerator(name)
    other = machine.changed(array={"group": 16})
    with pytest.raises(MachineError, match=f"{name}: .* sums groups of {group}, not of 16: give the costs of a unit"):
        group_energy(other, other.modes[0], 8)


def test_keys_pass_the_offset_unit():
    """1.1582 pJ a column of eight keys at 7 nm and 0.7 V; other products' outputs do not."""

    def of(name):
        return energy(pinned_plan(HARMONIA, replace(GEMM, name=name)))[OFFSETS]

    scale = energy_scale(28, 0.9) / energy_scale(7, 0.7)
    assert of("k") == pytest.approx(3 * 50 * 70 * 1.1582 / 8 * scale, rel=1e-4) and of("q") == 0
    assert OFFSETS not in energy(pinned_plan(ANDA, GEMM)) and OFFSETS not in area(ANDA)
    assert area(HARMONIA)[OFFSETS] == pytest.approx((124.7319 + 873.57528) * 1e-6 * area_scale(28) / area_scale(7))


def test_a_vector_operation_takes_what_a_lane_of_fp16_does():
    scale = energy_scale(16, 0.8) / energy_scale(7, 0.7)
    gemm = replace(GEMM, vector=2)
    assert energy(pinned_plan(ANDA, gemm))[VECTOR] == pytest.approx(3 * 50 * 70 * 2 * 0.335808 * scale)


@pytest.mark.parametrize("name, picojoules", [("m-ant", 0.197262), ("tender", 0.188132)])
def test_quantising_outputs_to_int8_takes_energy_and_time(name, picojoules):
    machine = read_accelerator(name)
    weights = Operand("int4" if name == "m-ant" else "int8", 8.0)

    def plan(out):
        return pinned_plan(machine, Gemm("any", 8, 32, 16, 2, Operand("int8", 8.0), weights, out))

    quantised, kept, halves = (plan(out) for out in (Operand("int8", 8.0), Operand("int8", 0.0), Operand("fp16", 16.0)))
    assert quantised.conversion(128) == 16 and kept.conversion(128) == halves.conversion(128) == 0
    expected = 2 * 8 * 16 * picojoules * energy_scale(28, 0.9) / energy_scale(7, 0.7)
    assert energy(quantised)[CONVERTER] == pytest.approx(expected) and energy(halves)[CONVERTER] == 0
