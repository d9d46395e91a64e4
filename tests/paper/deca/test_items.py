"""What the reproduction of DECA must keep, with GeMMs small enough for a test."""

import pytest

from tests.paper.reproducing import reproduced
from tilepress.paper import find
from tilepress.paper.deca.experiments.causes import CAUSES

SMALL = 56 * 512 * 500


def small(name, **options):
    """Cells of an item whose GeMMs, if it has any, are small."""
    (item,) = find([name])
    sizes = {"weights": SMALL} if "weights" in item.options else {}
    return reproduced(name, **sizes | options)


def test_limits_are_within_three_per_cent():
    cells = small("deca/table2")
    limits = [one for one in cells.values() if one.row in ("R-L", "R-S")]
    assert len(cells) == 36 and len(limits) == 24
    assert all(one.state == "matches" and abs(one.deviation) < 0.03 for one in limits)
    assert {one.origin for one in cells.values() if one.row == "Real"} == {"simulated"}


def test_utilisation_is_within_five_points():
    cells = small("deca/table4", weights=2 * SMALL)
    published = [one for one in cells.values() if one.paper is not None]
    assert len(published) == 24 and all(abs(one.deviation) <= 5 for one in published)


def test_headlines_have_a_band_beside_them():
    headlines = {"deca/table4": ("5%", "DECA, TMUL"), "deca/fig12": ("DECA over software", "Q8_5%")}
    for name, (row, column) in headlines.items():
        cells = small(name)
        least, most = (cells[row, f"{column}, {end}"] for end in ("least", "most"))
        assert 0.3 * most.value < least.value < 0.7 * most.value
        assert least.value <= cells[row, column].value <= most.value and "150 ns" in least.note


def test_prefetching_is_within_fifteen_per_cent_and_in_order():
    cells = small("deca/table5")
    rates = [one for (_, column), one in cells.items() if column == "performance"]
    assert len(rates) == 6 and all(abs(one.deviation or 0) < 0.15 for one in rates)
    assert cells["order", "performance"].state == "matches"
    others = [one for (_, column), one in cells.items() if column == "other prefetches"]
    assert len(others) == 5 and all(abs(one.deviation) < 0.15 and one.origin == "simulated" for one in others)
    misses = {row: one.value for (row, column), one in cells.items() if column == "L2 misses"}
    assert misses["DECA, degree 5"] < 2 < misses["DECA, degree 1"] == pytest.approx(12, abs=2)


def test_next_tokens_hold_without_being_fitted():
    times = [one for one in small("deca/table6").values() if one.unit == "ms"]
    assert len(times) == 30 and all(abs(one.deviation) <= 0.2 for one in times)
    assert sum(abs(one.deviation) for one in times) / 30 < 0.1


@pytest.mark.parametrize("name", ["deca/table1", "deca/fig3", "deca/fig4", "deca/fig5", "deca/fig16", "deca/fig17",
                                  "deca/fig18"])  # fmt: skip
def test_all_of_it_matches(name):
    assert all(one.state in ("matches", None) for one in small(name).values())


def test_speed_ups():
    for name, expected in (("deca/fig11", 1.7), ("deca/fig12", 4.0)):
        assert small(name)["DECA over software", "Q8_5%"].value == pytest.approx(expected, rel=0.1)


def test_the_engine_of_choice():
    cells = small("deca/fig15")
    least = cells["smallest engine that binds none", "W, L"]
    assert least.value == "deca:w32:l7" and least.state == "deviates"
    assert cells["smallest engine, tables in powers of two", "W, L"].value == "deca:w32:l8"
    assert 1 < cells["{32, 8} over {32, 7}", "mean of schemes"].value < 1.05
    assert cells["{32, 8} over {8, 4}", "mean of schemes"].value == pytest.approx(2, rel=0.1)
    assert 1 <= cells["{64, 64} over {32, 8}", "mean of schemes"].value < 1.03


def test_area_is_a_tenth_short_and_power_a_quarter():
    cells = small("deca/table3")
    power = cells["power of 56 elements", "total"]
    assert power.state == "deviates" and power.value == pytest.approx(3.1 * 0.744, rel=0.01)
    area = cells["area of 56 elements", "total"]
    assert area.state == "deviates" and area.value == pytest.approx(0.883 * 2.51, rel=0.01)
    for what in ("area", "power"):
        shares = [one.value for (row, _), one in cells.items() if row.startswith(what) and one.unit == "%"]
        assert sum(shares) == pytest.approx(100)


def test_what_is_not_here_says_so():
    cells = small("deca/table7")
    assert cells["next token", "H100 80 GB"].state == "not possible here" and cells["next token", "H100 80 GB"].note
    assert cells["H100 over SPR", "compute"].value == pytest.approx(6.9, abs=0.01)


@pytest.mark.parametrize("name", CAUSES)
def test_deviations_say_their_cause(name):
    cells = small(f"deca/{name}")
    assert CAUSES[name].keys() <= cells.keys()
    assert all(one.note for one in cells.values() if one.state == "deviates")
