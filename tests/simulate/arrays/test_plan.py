"""Tiles, traffic and the choice of an order."""

import pytest

from tilepress.hardware import MachineError, read_accelerator
from tilepress.simulate.arrays import Gemm
from tilepress.simulate.arrays.plan import pinned_plan
from tilepress.simulate.arrays.workload import Operand

HARMONIA, ANDA = read_accelerator("harmonia"), read_accelerator("anda")
BFP8, INT4 = Operand("bfp", 9.15625, 8), Operand("int4", 4.125)
NONE = Operand("fp16", 0.0)  # outputs that stay on chip


def gemm(rows, inputs=4096, columns=4096):
    return Gemm("q", rows, inputs, columns, 1, BFP8, INT4, NONE)


@pytest.mark.parametrize("rows", [1, 64, 1000, 2048])
def test_traffic_is_section_iv_d(rows):
    one = gemm(rows)
    activations, weights = rows * 4096 * BFP8.bits, 4096 * 4096 * INT4.bits
    column, row = (pinned_plan(HARMONIA, one, order) for order in ("column-major", "row-major"))
    assert column.traffic.total == pytest.approx(4096 / column.columns * activations + weights)
    assert row.traffic.total == pytest.approx(-(-rows // row.rows) * weights + activations)


def test_steps_load_what_traffic_counts():
    one = gemm(200, 640, 200)
    for order in ("column-major", "row-major"):
        plan = pinned_plan(HARMONIA.changed(memory={"bandwidth": HARMONIA.frequency / 8}), one, order)  # a bit a cycle
        loads = sum(plan.step(outer, inner).load for outer in range(plan.outer) for inner in range(plan.inner))
        assert loads == pytest.approx(plan.traffic.total, abs=plan.steps)


def test_the_order_of_less_traffic_is_taken():
    wide = HARMONIA.changed(tile={"rows": 16, "columns": 128})
    few, many = pinned_plan(wide, gemm(16)), pinned_plan(wide, gemm(4096))
    assert (few.order, many.order) == ("row-major", "column-major")
    assert few.traffic.total < pinned_plan(wide, few.gemm, "column-major").traffic.total
    assert many.traffic.total < pinned_plan(wide, many.gemm, "row-major").traffic.total


def test_a_machine_without_a_choice_keeps_its_order():
    assert pinned_plan(ANDA, gemm(4096)).order == "column-major"


def test_tiles_shrink_to_fit_two_of_them():
    short, long = pinned_plan(ANDA, gemm(64, 5120)), pinned_plan(ANDA, gemm(64, 36864))
    assert short.columns == 64 and long.columns < 64
    assert 2 * long.columns * 36864 * INT4.bits / 8 <= ANDA.buffers.weights


def test_a_tile_that_is_larger_than_a_buffer():
    small = ANDA.changed(buffers={"weights": 4096})
    with pytest.raises(MachineError, match=r"anda: a tile of 16 × 4096 weights .* is larger than its buffer of 4096"):
        pinned_plan(small, gemm(64))


def test_impossible_pairs_say_what_is_possible():
    wide = Gemm("q", 1, 64, 64, 1, Operand("bfp", 14, 13), INT4, NONE)
    with pytest.raises(MachineError, match=r"harmonia cannot multiply bfp m13 × int4; it multiplies bfp m1…8 × int4,"):
        pinned_plan(HARMONIA, wide)
    half = Gemm("scores", 1, 64, 64, 1, Operand("fp16", 16), Operand("fp16", 16), NONE)
    with pytest.raises(MachineError, match="anda cannot multiply fp16 × fp16"):
        pinned_plan(ANDA, half)


@pytest.mark.parametrize("field", ["rows", "inputs", "columns", "count"])
@pytest.mark.parametrize("size", [0, -3])
def test_sizes_are_positive(field, size):
    sizes = {"rows": 1, "inputs": 1, "columns": 1, "count": 1} | {field: size}
    with pytest.raises(ValueError, match=f"any: {field} is at least 1, not {size}"):
        Gemm("any", *sizes.values(), BFP8, INT4, NONE)
