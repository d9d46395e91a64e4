"""What the reproduction of Harmonia's hardware must keep."""

import pytest

from tests.paper.reproducing import reproduced
from tilepress.hardware import read_accelerator
from tilepress.hardware.technology import area_scale
from tilepress.paper.harmonia.experiments.causes import CAUSES
from tilepress.paper.harmonia.experiments.rivals import rivals
from tilepress.simulate.arrays.costs import ARRAY, area


def test_averages_of_harmonia_are_within_ten_per_cent_but_for_energy():
    cells = reproduced("harmonia/fig16-joint")
    for column, most in (("speed-up", 0.1), ("area efficiency", 0.1), ("energy efficiency", 0.2)):
        assert abs(cells["average of all", column].deviation) < most
    assert reproduced("harmonia/fig16-linear")["largest of a model", "speed-up"].state == "matches"


def test_rivals_have_the_area_of_harmonia():
    room = area(read_accelerator("harmonia"))[ARRAY]
    for rival in rivals():
        assert 0.9 * room < area(rival.machine)[ARRAY] <= room and rival.machine.node == 28


def test_the_synthesis_of_harmonia():
    cells = reproduced("harmonia/synthesis")
    assert all(one.state == "deviates" for one in cells.values() if one.paper is not None)
    assert 1.5 < cells["Harmonia", "power"].value / 542 < 1.7
    assert cells["Harmonia", "M8W4 and M8M4"].value == pytest.approx(2 * cells["Harmonia", "M8M8"].value)
    offsets = cells["area of the offset unit", "area"].value
    assert offsets == pytest.approx((124.7319 + 873.57528) * 1e-6 * area_scale(28) / area_scale(7))


def test_longer_texts_favour_harmonia():
    cells = reproduced("harmonia/fig19")
    speeds = [cells[f"{tokens} tokens over anda-m4", "speed-up"].value for tokens in (2048, 4096, 8192, 16384)]
    assert speeds == sorted(speeds) and cells["2K to 16K", "least speed-up"].state == "matches"


def test_shares_by_length():
    assert reproduced("harmonia/fig1")["Llama2-7B, 131072 tokens", "KV cache"].state == "matches"


def test_units_and_converter():
    quantiser = reproduced("harmonia/converter")["online quantiser over BFP converter", "area"].value
    assert quantiser == pytest.approx(1133.79912 / 269.32176)
    cells = reproduced("harmonia/fig17")
    rates = {
        "figna": 4 / 898.7112,
        "anda-m4": 64 / 5 / 1267.68726,
        "fp16-int4": 1 / 122.50116,
    }  # products a cycle and µm²
    for rival, rate in rates.items():
        ours = cells[f"M8W4 over {rival}", "area efficiency"].value
        assert ours == pytest.approx(32 / 1618.84656 / rate)


def test_energy_by_part():
    cells = reproduced("harmonia/fig18")
    assert all(one.state == "matches" for one in cells.values() if one.paper is not None)
    for scope in ("linear", "joint"):
        for machine in ("harmonia", "fp16-fp16", "anda-m4"):
            parts = [cells[f"{scope}, {machine}", part].value for part in ("compute", "SRAM", "DRAM")]
            assert sum(parts) == pytest.approx(cells[f"{scope}, {machine}", "total"].value)
        assert cells[f"{scope}, fp16-fp16", "total"].value == cells[f"{scope}, fp16-fp16", "speed-up"].value == 1


def test_a_breakdown_s_total_is_the_efficiency_of_figure_16():
    breakdown, linear = reproduced("harmonia/fig18"), reproduced("harmonia/fig16-linear")
    saving, speed = (linear["over fp16-fp16", one].value for one in ("energy efficiency", "speed-up"))
    assert breakdown["linear, harmonia", "total"].value == pytest.approx(1 / saving, rel=0.02)
    assert breakdown["linear, harmonia", "speed-up"].value == pytest.approx(speed)


@pytest.mark.parametrize("item", CAUSES)
def test_every_deviation_says_its_cause(item):
    cells = reproduced(f"harmonia/{item}")
    assert CAUSES[item].keys() <= cells.keys()
    assert {cell for cell, one in cells.items() if one.state == "deviates"} == CAUSES[item].keys()
    assert all(cause in cells[cell].note for cell, cause in CAUSES[item].items())


def test_rows_of_the_best_mapping_stand_beside_the_papers():
    cells = reproduced("harmonia/fig16-joint")
    pinned, best = (cells[f"over anda-m8{ending}", "energy efficiency"].value for ending in ("", ", best mapping"))
    assert 1 < best < 0.95 * pinned
    speeds = [cells[f"over anda-m8{ending}", "speed-up"].value for ending in ("", ", best mapping")]
    assert speeds[1] == pytest.approx(speeds[0], rel=0.01)
