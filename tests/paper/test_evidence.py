"""Evidence is computed from what is declared, and what is declared is true of the models."""

from collections import Counter
from functools import cache

import pytest

from tilepress.evidence import Cells
from tilepress.paper import Item, Published, choices, evidence_of, find, fitted_constants, items, run
from tilepress.paper.evidence import behind
from tilepress.paper.sensitivity import changed

SMALL = {"weights": 56 * 512 * 150}
FACTOR = 1.5  # moves constants that are rounded to whole cycles or lines, too


def cells(name):
    """(row, column) → value, of the paper's cells."""
    (item,) = find([name])
    options = {key: value for key, value in SMALL.items() if key in item.options}
    return {(one.row, one.column): one for one in run(item, lambda sequence, _: sequence, options, "") if one.state}


@cache
def unchanged(name):
    return cells(name)


def item(cell, kind="simulated"):
    return Item("deca/table9", "", kind, [cell], lambda track: [])


def test_cells_by_name():
    some = Cells("deca/table4", "5%", "DECA, *")
    assert some.include("deca/table4", "5%", "DECA, MEM") and str(some) == "deca/table4 (5%; DECA, *)"
    assert not some.include("deca/table4", "5%", "software, MEM") and not some.include("deca/table5", "5%", "DECA, MEM")
    assert str(Cells("deca/table1")) == "deca/table1" and Cells("deca/table1").include("deca/table1", "N=1", "DDR")


@pytest.mark.parametrize(
    "kind, more, expected",
    [
        ("simulated", {}, "held-out"),
        ("measured here", {}, "held-out"),
        ("simulated", {"relation": ">"}, "one-sided"),
        ("simulated", {"relation": ">", "follows": "table 6"}, "derived"),
        ("simulated", {"follows": "table 6"}, "derived"),
        ("exact", {}, "derived"),
    ],
)
def test_what_nothing_declares(kind, more, expected):
    cell = Published("r", "c", 1.0, "x", "table 9", **more)
    assert evidence_of(item(cell, kind), cell) == expected


def test_what_is_declared_is_the_least():
    (table_4,) = find(["deca/table4"])
    kinds = {one.cell: evidence_of(table_4, one) for one in table_4.published}
    assert kinds["100%", "DECA, MEM"] == "fitted" and kinds["50%", "software, TMUL"] == "chosen"
    assert Counter(kinds.values())["held-out"] == 0


@pytest.mark.parametrize("declared", [*fitted_constants().values(), *choices().values()], ids=str)
def test_declared_cells_are_there(declared):
    known = [(one.name, *cell.cell) for one in items() for cell in one.published]
    for some in declared.cells:
        assert any(some.include(*cell) for cell in known), str(some)


@pytest.mark.parametrize("name", [name for name, one in fitted_constants().items() if one.cells])
def test_a_constant_moves_the_cells_it_was_fitted_to_and_none_beside_them_is_held_out(name):
    """Whoever fits a constant to some cells of a table sees the rest of it: what moves there is no prediction."""
    constant = fitted_constants()[name]
    moved = 0
    for table in dict.fromkeys(some.item for some in constant.cells):
        before = unchanged(table)
        with changed(name, FACTOR):
            after = cells(table)
        for cell, one in before.items():
            if after[cell].value != one.value:
                assert one.evidence != "held-out", f"{table} {cell} moves with {name}"
                moved += any(some.include(table, *cell) for some in constant.cells)
    assert cells(table) == before  # of the last: the change is undone
    assert moved, f"{name} moves none of the cells that it is declared to be fitted to"


def test_constants_are_put_back_when_a_run_fails():
    name = "deca: memory_share"
    before = fitted_constants()[name].value
    with pytest.raises(ValueError), changed(name, 2.0):
        raise ValueError
    from tilepress.simulate.deca.parameters import fitted

    assert fitted("memory_share") == before


def test_who_had_a_cell_in_sight():
    (table_1,) = find(["deca/table1"])
    names = behind(fitted_constants(), "deca/table1", table_1.published[0])
    assert names == ["deca: other_layer_time", "deca: other_sequence_time", "deca: attention_rate"]
