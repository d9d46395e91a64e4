"""What the reproduction of Anda's hardware must keep."""

import pytest

from tests.paper.reproducing import reproduced
from tilepress.compression.search import bops_saving
from tilepress.paper.anda.experiments.causes import CAUSES
from tilepress.paper.anda.experiments.mantissas import combination
from tilepress.paper.anda.experiments.table2 import Row, models, products_of


@pytest.mark.parametrize("tolerance", ["0.1 %", "1 %"])
def test_combinations_give_the_savings_of_table_ii(tolerance):
    for model in models():
        printed = Row(model, "WikiText2", f"Anda {tolerance}").printed("BOP saving")
        assert bops_saving(combination(model, tolerance), products_of(model)) == pytest.approx(printed, abs=0.012)


def test_anda_s_speed_is_within_two_per_cent_its_energy_within_ten_and_its_area_is_too_large():
    cells = {key: one for key, one in reproduced("anda/fig16").items() if one.paper is not None}
    speed = [one for one in cells.values() if one.column.startswith("speed-up")]
    assert len(cells) == 8 and len(speed) == 4 and all(abs(one.deviation) < 0.02 for one in speed)
    for (_, column), one in cells.items():
        if column == "area efficiency":
            assert one.deviation < -0.3 and one.state == "deviates"
        assert column != "energy efficiency" or one.state == "matches"


def test_areas_and_powers_are_those_of_synthesis():
    """At four products a cycle: µm² and pJ at 7 nm."""
    cells = reproduced("anda/fig15")
    for row, rival in (("fp-fp", 4 * 358.28892), ("fp-int", 4 * 813.62232), ("ifpu", 1377.64962), ("figna", 898.7112)):
        assert cells[f"over {row}", "area"].value == pytest.approx(100 * 1267.68726 / rival)
    for row, rival in (
        ("fp-fp", 64 * 0.5004990155093552),
        ("fp-int", 64 * 0.5850305337928247),
        ("ifpu", 4 * 3.88745978648064),
        ("figna", 15.027811743362644),
    ):  # pJ of a group, 15 bits of Anda's
        assert cells[f"over {row}", "power"].value == pytest.approx(100 * 11.319195090760433 / rival)
    efficiency = cells["8 bits over figna-m8", "energy efficiency"].value  # with four lanes of it
    assert efficiency == pytest.approx(10.701803935736617 / 7.020089655429394)
    short = cells["11 bits over figna-m11", "area efficiency"]
    assert short.value == pytest.approx(16 / 12 * 856.45836 / 1267.68726) and short.evidence == "chosen"


def test_the_breakdown_of_anda_holds_where_it_was_not_fitted():
    cells = reproduced("anda/fig17")
    assert abs(cells["energy saved over fp-fp", "DRAM"].deviation) < 5
    assert abs(cells["energy saved over fp-fp", "SRAM"].deviation) < 10
    assert 40 < cells["share of fp-fp's energy, fp-fp", "DRAM"].value < 50


def test_table_iii_adds_up():
    cells = reproduced("anda/table3")
    for column in ("area", "power"):
        parts = [one.value for (row, what), one in cells.items() if what == column and row != "Total"]
        assert sum(parts) == pytest.approx(cells["Total", column].value)
    assert 2.6 < cells["MXU", "power"].value / 54.34 < 3 and cells["MXU", "power"].state == "deviates"
    assert cells["MXU", "area"].value == pytest.approx(256 * 1267.68726e-6 * 0.19 / 0.059)
    assert cells["Vector Unit", "area"].value == pytest.approx(64 * 207.37134e-6 * 0.19 / 0.059)


def test_tolerances_speed_llama_13b_up():
    cells = reproduced("anda/fig18-speed")
    for tolerance in ("0.1 %", "5 %"):
        assert cells[f"LLaMA-13B, {tolerance}", "speed-up"].state == "matches"


def test_shares_by_length():
    cells = reproduced("anda/fig2")
    assert cells["OPT-6.7B", "1024 tokens"].value > cells["OPT-6.7B", "32768 tokens"].value
    assert cells["average of models", "4096 tokens"].state == "matches"


@pytest.mark.parametrize("item", CAUSES)
def test_every_deviation_says_its_cause(item):
    cells = reproduced(f"anda/{item}")
    assert CAUSES[item].keys() <= cells.keys()
    assert {cell for cell, one in cells.items() if one.state == "deviates"} == CAUSES[item].keys()
    assert all(cause in cells[cell].note for cell, cause in CAUSES[item].items())


def test_rows_of_the_best_mapping_stand_beside_the_papers():
    cells = reproduced("anda/fig17")
    pinned, best = (cells[f"times less than figna{ending}", "DRAM"].value for ending in ("", ", best mapping"))
    assert best > pinned and cells["times less than figna, best mapping", "DRAM"].paper is None
