"""Anda's items: the studies on a tiny model, and the paper's own arithmetic."""

import json

import pytest

from tests.models import tiny
from tests.paper.reproducing import reproduced
from tilepress.compression.search import bops_saving, uniform
from tilepress.paper import find
from tilepress.paper.anda.experiments.table2 import models, products_of, rows

SMALL = {"weights": "int8:g32", "device": "cpu"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, text = tiny.save(tmp_path_factory.mktemp("anda") / "model")
    text.write_text("\n".join([text.read_text()] * 3))
    return str(folder), str(text)


def test_table_2_is_complete():
    (item,) = find(["anda/table2"])
    assert len(models()) == 9 and len(list(rows())) == 3 * 6 * 9
    assert {row.name for row in rows()} == {
        f"{model}, {text}, {method}"
        for model in models()
        for text in ("WikiText2", "PTB", "C4")
        for method in ("FP16", "Omniquant", "FIGNA", "VS-Quant", "Anda 0.1 %", "Anda 1 %")
    }
    counts = {column: sum(one.column == column for one in item.published) for column in ("perplexity", "loss")}
    assert counts == {"perplexity": 162, "loss": 3 * 4 * 9} and len(item.published) == 162 + 3 * 4 * 9 + 3 * 5 * 9


def test_weights_of_bit_operations():
    assert [count / sum(products_of("OPT-30B")) for count in products_of("OPT-30B")] == [3 / 12, 1 / 12, 4 / 12, 4 / 12]
    assert products_of("LLaMA2-7B") == (3 * 4096, 4096, 2 * 11008, 11008)
    assert bops_saving(uniform(13), products_of("LLaMA-13B")) == pytest.approx(1.23, abs=0.005)


def test_table_2_from_its_own_figures():
    """Three losses are relative to the wrong perplexity; all others follow from what is printed."""
    cells = reproduced("anda/table2-arithmetic").values()
    assert {one.row for one in cells if one.state == "deviates"} == {
        f"OPT-2.7B, {text}, VS-Quant" for text in ("WikiText2", "PTB", "C4")
    }
    assert sum(one.state == "matches" for one in cells) == 107


def test_every_saving_of_table_2_can_be_had():
    cells = reproduced("anda/fig14-candidates").values()
    assert len(cells) == 54 and {one.state for one in cells} == {"matches"}


def test_group_sizes_and_mantissas(model):
    cells = reproduced("anda/fig5", model=model[0], text=model[1], windows=2, tokens=32, **SMALL)
    assert len(cells) == 4 * 8
    losses = [abs(cells[f"{model[0]}, g{group}", "m4"].value) for group in (16, 128)]
    assert losses[1] > losses[0] > abs(cells[f"{model[0]}, g64", "m11"].value)


def test_mantissas(model):
    cells = reproduced("anda/fig6", model=model[0], text=model[1], windows=2, tokens=32, **SMALL)
    removed = cells[model[0], "mantissa bits removed within 1 %"]
    assert 0 < removed.value < 11 and removed.unit == "bit"
    assert cells["OPT-2.7B", "mantissa bits removed within 1 %"].state == "not possible here"
    bits = 11 - removed.value
    assert cells[model[0], f"m{bits}"].value <= 1 < cells[model[0], f"m{bits - 1}"].value


def test_one_type_at_a_time(model):
    cells = reproduced("anda/fig7", model=model[0], text=model[1], windows=2, tokens=32, **SMALL)
    losses = {kind: cells[f"{model[0]}, {kind}", "m4"].value for kind in ("qkv", "o", "u", "d")}
    assert cells[model[0], "most sensitive type"].value == max(losses, key=losses.get)
    assert len(set(losses.values())) == 4


def test_the_search_and_the_table(model):
    options = {"model": model[0], "sequences": 3, "length": 32, **SMALL}
    steps = reproduced("anda/fig9", text=model[1], tolerance=0.01, **options)
    combination = steps[model[0], "combination"].value
    assert steps["OPT-125M", "combination"].paper == "[7, 7, 6, 5]"
    last = steps[f"{model[0]}, iteration {steps[model[0], 'iterations'].value:02}", "combination"]
    assert last.value == combination and last.note == "taken"

    combinations = reproduced("anda/fig14", texts=model[1], **options)
    row = f"{model[0]}, {model[1]}, 1 %"
    assert f"[{', '.join(str(combinations[row, kind].value) for kind in ('qkv', 'o', 'u', 'd'))}]" == combination

    table = reproduced("anda/table2", texts=model[1], windows=2, tokens=32, **options)
    ours = table[f"{model[0]}, {model[1]}, Anda 1 %", "BOP saving"]
    assert ours.note == f"anda:{combination[1:-1].replace(' ', '')}" and ours.value > 1.23
    assert table[f"{model[0]}, {model[1]}, FP16", "loss"].value == 0
    assert table["OPT-1.3B, PTB, VS-Quant", "perplexity"].value is None

    savings = reproduced("anda/fig18", text=model[1], **options)
    assert savings[model[0], "1 %"].value == ours.value
    values = [savings[model[0], f"{tolerance} %"].value for tolerance in (0.1, 0.5, 1, 5)]
    assert all(value >= 1 for value in values)  # a greedy search with an end may find less within a wider tolerance


def test_the_time_of_a_search_beside_gptq(model):
    cells = reproduced("anda/search-time", model=model[0], text=model[1], sequences=2, length=32)
    search, gptq = (cells[model[0], name].value for name in ("search", "GPTQ"))
    assert cells["any model", "times as fast as GPTQ"].value == pytest.approx(gptq / search)
    assert cells["any model", "times as fast as Omniquant"].state == "not possible here"


def test_without_the_text(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEPRESS_DATA", str(tmp_path))
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path))
    cells = reproduced("anda/fig7", model=model[0])
    assert {one.state for one in cells.values()} == {"not possible here"}
    assert "wikitext2-test.txt is not in" in next(iter(cells.values())).note


def test_records_and_a_page_of_plots(model, tmp_path, capsys, monkeypatch):
    from tilepress.cli import main

    page = tmp_path / "page.html"
    settings = [f"model={model[0]}", f"text={model[1]}", "windows=1", "tokens=32"]
    arguments = ["reproduce", "anda/fig6", "--html", str(page), "--json"]
    arguments += [part for setting in settings for part in ("--set", setting)]
    monkeypatch.setattr("sys.argv", ["tilepress", *arguments])
    main_ends_well(main)
    records = json.loads(capsys.readouterr().out)
    assert {record["item"] for record in records} == {"anda/fig6"}
    assert "sensitivity to the mantissa" in page.read_text()


def main_ends_well(main):
    try:
        main()
    except SystemExit as end:
        assert not end.code
