"""The frame, on a paper of our own making."""

import pytest

from tilepress.paper import Item, NotPossible, Ours, Published, registry, run, worst
from tilepress.paper.options import SAMPLED, Sampled
from tilepress.paper.tolerance import quantity_of

PLACE = "table 1"


def item(published, *ours, error=None, kind="exact"):
    def experiment(track, *, windows: int = 2, device: str | None = None):
        if error:
            raise error
        yield from track(ours, "cells")

    return Item("mine/table1", "a table", kind, published, experiment)


def records(item, **options):
    return run(item, lambda sequence, _: sequence, options, "tilepress reproduce")


@pytest.mark.parametrize(
    "value, unit, ours, relation, deviation, state",
    [
        (10.0, "ms", 10.9, "=", 0.09, "matches"),
        (10.0, "ms", 11.1, "=", 0.11, "deviates"),
        (10.0, "ms", 9.1, "=", -0.09, "matches"),
        (10.0, "ms", 9.0, "=", -0.1, "deviates"),
        (90.0, "%", 94.9, "=", 4.9, "matches"),
        (90.0, "%", 95.1, "=", 5.1, "deviates"),
        (3.0, "ms", 2.0, "<", -1 / 3, "matches"),
        (3.0, "ms", 3.1, "<", 0.1 / 3, "deviates"),
        (3.0, "ms", 9.0, ">", 2.0, "matches"),
        (3.0, "ms", 2.9, ">", -0.1 / 3, "deviates"),
        (0.0, "lines", 0, "=", None, "matches"),
        (0.0, "lines", 1, "=", None, "deviates"),
        (0.0, "schemes", 2, ">", None, "matches"),
        (0.0, "schemes", 0, ">", None, "deviates"),
        ("W=32", "", "W=32", "=", None, "matches"),
        ("W=32", "", "W=64", "=", None, "deviates"),
        (3.0, "ms", None, "=", None, "not possible here"),
    ],
)
def test_a_cell(value, unit, ours, relation, deviation, state):
    published = [Published("r", "c", value, unit, PLACE, quantity_of(unit), relation)]
    (found,) = records(item(published, Ours("r", "c", ours)))
    assert found.deviation == (None if deviation is None else pytest.approx(deviation))
    assert (found.state, found.unit, found.item) == (state, unit, "mine/table1")
    assert (found.metric, found.row, found.column) == ("reproduction", "r", "c")
    assert found.paper == (value if relation == "=" else f"{relation} {value:g}")


def test_cells_come_in_the_papers_order_and_ours_alone_after_them():
    published = [Published(*cell, "ms", PLACE) for cell in (("r", "a", 1.0), ("r", "b", 2.0), ("s", "a", 3.0))]
    found = records(item(published, Ours("s", "b", 9.0, "ms"), Ours("s", "a", 3.0), Ours("r", "a", 1.0)))
    assert [(one.row, one.column, one.paper) for one in found] == [
        ("r", "a", 1.0),
        ("r", "b", 2.0),
        ("s", "a", 3.0),
        ("s", "b", None),
    ]
    assert [one.state for one in found] == ["matches", "not possible here", "matches", None]
    assert found[1].note == "the experiment gives no value for it"
    assert worst(found) == "not possible here" and worst(found[3:]) is None


def test_what_cannot_run_here_says_why_in_every_cell():
    published = [Published("r", "a", 1.0, "ms", PLACE), Published("r", "b", 2.0, "ms", PLACE)]
    found = records(item(published, error=NotPossible("it wants an H200")))
    assert [(one.value, one.state, one.note) for one in found] == [(None, "not possible here", "it wants an H200")] * 2


def test_an_experiment_that_is_not_possible_is_told_where_the_paper_has_no_values():
    (found,) = records(item((), error=NotPossible("it wants an H200")))
    assert (found.value, found.paper, found.state, found.note) == (None, None, "not possible here", "it wants an H200")


def test_origin_follows_the_kind():
    published = [Published("r", "c", 1.0, "ms", PLACE)]
    for kind, origin in (("exact", "model"), ("simulated", "simulated"), ("measured here", "measured")):
        assert records(item(published, kind=kind))[0].origin == origin


def test_options_are_the_experiments_keywords():
    mine = item([])
    assert mine.options == {"windows": 2, "device": None}
    assert mine.read_options({"windows": "4", "device": "cuda", "other": "x"}) == {"windows": 4, "device": "cuda"}
    with pytest.raises(ValueError, match=r"mine/table1: windows=few: .*valid integer"):
        mine.read_options({"windows": "few"})


def test_a_dataclass_stands_for_its_fields():
    def experiment(track, *, sampled: Sampled = SAMPLED, model: str = "mine"):
        yield Ours(model, "tokens", sampled.sequences * sampled.length)

    mine = Item("mine/table1", "", "exact", (), experiment)
    assert mine.options == {"sequences": 2, "length": 128, "model": "mine"}
    told = mine.read_options({"length": "8", "model": "yours"})
    assert told == {"length": 8, "model": "yours"}
    assert list(mine.run(iter, told)) == [Ours("yours", "tokens", 16)]


def test_items_are_found_by_name_and_paper(monkeypatch):
    first, second = item([]), Item("mine/table2", "", "exact", (), item([]).experiment)
    monkeypatch.setattr(registry, "PAPERS", ((first, second),))
    assert registry.find(["mine"]) == registry.find(["all"]) == [first, second]
    assert registry.find(["mine/table2", "mine/table2"]) == [second]
    with pytest.raises(ValueError, match=r"no item 'mine/tabel2'; did you mean 'mine/table2'\?"):
        registry.find(["mine/tabel2"])
    with pytest.raises(ValueError, match="--list"):
        registry.find(["???"])


def test_real_items_are_whole():
    names = [one.name for one in registry.items()]
    assert len(set(names)) == len(names)
    for one in registry.items():
        cells = [theirs.cell for theirs in one.published]
        assert len(set(cells)) == len(cells), one.name
        assert all(theirs.place for theirs in one.published), one.name
        one.read_options({name: str(default) for name, default in one.options.items() if default is not None})
