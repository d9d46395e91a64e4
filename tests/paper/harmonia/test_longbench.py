"""Harmonia's table II: its arithmetic, and the tasks that can be asked here."""

from statistics import mean

import pytest

from tests.paper.reproducing import SIZES, reproduced
from tilepress.evaluate import Question
from tilepress.paper.harmonia.experiments.longbench import METHODS
from tilepress.paper.published import read_paper
from tilepress.paper.studies import kv_cache


def test_the_table_is_whole():
    paper = read_paper("harmonia")
    assert len(paper.values("longbench")) == 25 * 9 and len(paper.values("table2")) == 25


def test_printed_averages_are_those_of_the_printed_tasks():
    averages = [one for one in reproduced("harmonia/table2").values() if one.paper is not None]
    assert len(averages) == 25 and all(abs(one.deviation) <= 0.005 + 1e-9 for one in averages)


def test_tasks_add_up_to_the_claims():
    by_task = reproduced("harmonia/table2")
    for claim, value in (("below Omniquant", 0.338), ("above KIVI-q", 3.854), ("above naive", 5.768)):
        tasks = [one.value for (row, _), one in by_task.items() if row == f"{claim}, mean of five models"]
        assert len(tasks) == 9 and mean(tasks) == pytest.approx(value, abs=0.01)


def test_means():
    cells = reproduced("harmonia/table2-means")
    assert {one.column: one.state for one in cells.values()} == {
        "below Omniquant": "matches",
        "above KIVI-q": "matches",
        "above naive": "matches",
        "above Omniquant": "matches",
    }
    assert cells["Llama-3.1-8B-Instruct", "above Omniquant"].value == pytest.approx(46.74 - 46.35)


def test_methods_on_tasks_that_are_here(model, monkeypatch):
    questions = [Question("a b", ("c", "d"), 0)] * 2
    monkeypatch.setattr(kv_cache, "read_task", lambda task: questions)
    few = {"facts": 2, "items": 2, "sequences": 1, "length": 40, "steps": 2, "weights": "int8:g32"}
    cells = reproduced("harmonia/table2-tasks", **model, **SIZES, **few, others="none.txt")
    here, column = f"perplexity, {model['text']}", "perplexity, none.txt"
    perplexities = [cells[method, here].value for method in METHODS]
    assert len(set(perplexities)) == 4
    assert all(0 <= cells[method, task].value <= 100 for method in METHODS for task in ("facts found", "piqa"))
    assert cells["Full", column].value is None and "none.txt" in cells["Full", column].note
