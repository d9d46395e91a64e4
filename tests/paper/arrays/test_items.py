"""What the reproduction of Anda's and Harmonia's hardware must keep."""

import pytest

from tilepress.compression.search import bops_saving
from tilepress.paper import find, run
from tilepress.paper.anda_published import MODELS, SAVING, products_of
from tilepress.paper.arrays.runs import TOLERANCES, combination, rivals
from tilepress.simulate.arrays.costs import ARRAY, area


def cells(name):
    (item,) = find([name])
    return {(one.row, one.column): one for one in run(item, lambda sequence, _: sequence, {}, "tilepress reproduce")}


@pytest.mark.parametrize("tolerance, method", TOLERANCES.items())
def test_combinations_give_the_savings_of_table_ii(tolerance, method):
    for model, printed in zip(MODELS, SAVING["WikiText2"][method], strict=True):
        assert bops_saving(combination(model, tolerance), products_of(model)) == pytest.approx(printed, abs=0.012)


def test_averages_of_anda_are_within_ten_per_cent():
    found = [one for one in cells("anda/fig16").values() if one.paper is not None]
    assert len(found) == 8 and all(abs(one.deviation) < 0.1 for one in found)
    speed = [one for one in found if one.column.startswith("speed-up")]
    assert all(abs(one.deviation) < 0.02 for one in speed)


def test_the_breakdown_of_anda_holds_where_it_was_not_fitted():
    found = cells("anda/fig17")
    assert abs(found["energy saved over fp-fp", "DRAM"].deviation) < 5
    assert abs(found["energy saved over fp-fp", "SRAM"].deviation) < 10
    assert found["share of fp-fp's energy, fp-fp", "DRAM"].value > 50


def test_table_iii_adds_up():
    found = cells("anda/table3")
    for column in ("area", "power"):
        parts = [one.value for (row, what), one in found.items() if what == column and row != "Total"]
        assert sum(parts) == pytest.approx(found["Total", column].value)
        assert found["Total", column].state == found["MXU", column].state == "matches"


def test_tolerances_speed_llama_13b_up():
    found = cells("anda/fig18-speed")
    for tolerance in ("0.1 %", "5 %"):
        assert found[f"LLaMA-13B, {tolerance}", "speed-up"].state == "matches"


def test_units_of_anda_beside_figna():
    found = cells("anda/fig15")
    assert found["over figna", "area"].value > 118 and found["8 bits over figna", "area efficiency"].state == "matches"
    assert found["over fp-fp", "area"].state == "matches"


def test_averages_of_harmonia_are_within_ten_per_cent():
    found = cells("harmonia/fig16-joint")
    for column in ("speed-up", "area efficiency", "energy efficiency"):
        assert abs(found["average of all", column].deviation) < 0.1
    assert cells("harmonia/fig16-linear")["largest of a model", "speed-up"].state == "matches"


def test_rivals_have_the_area_of_harmonia():
    from tilepress.hardware import read_accelerator

    room = area(read_accelerator("harmonia"))[ARRAY]
    for rival in rivals():
        assert 0.9 * room < area(rival.machine)[ARRAY] <= room and rival.machine.node == 28


def test_the_synthesis_of_harmonia():
    found = cells("harmonia/synthesis")
    assert all(one.state == "matches" for one in found.values() if one.paper is not None)
    assert found["Harmonia", "M8W4 and M8M4"].value == pytest.approx(2 * found["Harmonia", "M8M8"].value)


def test_longer_texts_favour_harmonia():
    found = cells("harmonia/fig19")
    speeds = [found[f"{tokens} tokens over anda-m4", "speed-up"].value for tokens in (2048, 4096, 8192, 16384)]
    assert speeds == sorted(speeds) and found["2K to 16K", "least speed-up"].state == "matches"


def test_shares_by_length():
    anda, harmonia = cells("anda/fig2"), cells("harmonia/fig1")
    assert anda["OPT-6.7B", "1024 tokens"].value > anda["OPT-6.7B", "32768 tokens"].value
    assert anda["average of models", "4096 tokens"].state == "matches"
    assert harmonia["Llama2-7B, 131072 tokens", "KV cache"].state == "matches"
    assert cells("harmonia/converter")["online quantiser over BFP converter", "area"].value > 3
    assert cells("harmonia/fig17")["M8W4", "largest area efficiency"].state == "matches"
