"""benchmarks/quality.py saves each row as it is made, goes on where it stopped, and the README shows what it saved."""

import importlib
import sys
from pathlib import Path

import pytest

from tilepress.records import Record
from tilepress.report import read_records

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROW = "int4:g32@50%+bfp:g32:m7 wanda"
OUT = {"model": "out"}


@pytest.fixture
def quality(tmp_path, monkeypatch):
    """The script, with commands that answer at once; `.asked` is what it ran."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("run", "quality", "kept_results", "readme_table")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    module, table = importlib.import_module("quality"), importlib.import_module("readme_table")
    module.asked, module.table = [], table

    def answer(command, folder):
        module.asked.append(command)
        model = command[2] if command[0] == "bench" else command[1]
        of, text, task = {"model": model}, {"model": model, "text": "wikitext2"}, {"model": model, "task": "piqa"}
        figures = {
            "compress": [
                ("source_size", OUT, 400e6),
                ("size", OUT, 100e6),
                ("time", OUT, 1.0),
                ("bits_per_weight", OUT, 4.5),
                ("layer_error", {**OUT, "layer": "lm_head"}, 0.1),
                ("time", {**OUT, "shape": "8x8"}, 0.1),
            ],
            "eval": [
                ("perplexity", text, 20.0),
                ("kl_divergence", text, 0.25),
                ("accuracy", task, 0.6),
                ("accuracy", {**task, "statistic": "standard_error"}, 0.1),
            ],
            "bench": [("read_bandwidth", {}, 1.0), ("decode", {**of, "depth": 121, "batch": 1}, 50.0)],
        }[command[0]]
        text = " ".join(["tilepress", *command, "--json"])
        return [Record(metric, labels, value, "", "measured", "m", text) for metric, labels, value in figures]

    monkeypatch.setattr(module, "run", answer)
    monkeypatch.setattr(module, "processor", lambda: "neoverse-n1")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "RESULTS", tmp_path)

    def call(*arguments):
        module.asked.clear()
        monkeypatch.setattr(sys, "argv", ["quality.py", *arguments])
        module.main()
        return module.asked

    module.call = call
    yield module
    for name in names:
        sys.modules.pop(name, None)


def test_rows_are_those_promised(quality):
    assert len(quality.ROWS) == 1 + 2 * 6 + 3 + 3 and ROW in quality.ROWS
    assert quality.ROWS[ROW].compress() == [
        *("compress", "smollm2-135m", "-o", "out", "--weights", "int4:g32"),
        *("--density", "0.5", "--prune", "wanda", "--acts", "bfp:g32:m7"),
    ]


def test_a_row_is_made_once_and_again_with_other_settings(quality, tmp_path):
    asked = quality.call("smollm2-135m", ROW)
    assert [command[0] for command in asked] == ["eval", "bench", "compress", "eval", "bench"]
    (path,) = (tmp_path / "quality").iterdir()
    figures = [(one.metric, one.labels) for one in read_records([path])]
    pruned = {"model": "int4:g32@50%+bfp:g32:m7", "prune": "wanda"}
    assert [one for one in figures if one[1] == pruned] == [
        ("source_size", pruned), ("size", pruned), ("time", pruned)]  # fmt: skip
    assert ("perplexity", {**pruned, "text": "wikitext2"}) in figures
    assert not any("layer" in labels or metric == "read_bandwidth" for metric, labels in figures)
    assert quality.call("smollm2-135m", ROW) == []
    assert [command[0] for command in quality.call(ROW, "--items", "7")] == ["compress", "eval", "bench"]
    records = read_records([path])
    assert [(one.metric, one.labels) for one in records] == figures
    assert {one.command for one in records if one.metric == "accuracy"} == {
        "tilepress eval smollm2-135m --data wikitext2 --windows 1 --task piqa --items 25 --json",
        "tilepress eval out --against smollm2-135m --data wikitext2 --windows 1 --task piqa --items 7 --json",
    }


def test_what_was_begun_on_another_day_goes_on(quality, tmp_path):
    quality.call("smollm2-135m")
    (path,) = (tmp_path / "quality").iterdir()
    before = path.rename(path.with_name("2001-01-01-neoverse-n1.json"))
    asked = quality.call()
    assert len(asked) == 3 * (len(quality.ROWS) - 1)
    assert list((tmp_path / "quality").iterdir()) == [before]
    quality.call()  # all is there: a new one
    assert len(list((tmp_path / "quality").iterdir())) == 2


def test_the_readme_shows_what_was_kept_and_nothing_else(quality):
    assert quality.table.quality_table(quality.table.Reader()) == ""
    quality.call("smollm2-135m", ROW)
    lines = quality.table.quality_table(quality.table.Reader()).splitlines()
    assert lines[0].endswith("| MB | tokens/s, 2-core Neoverse-N1 |")
    assert lines[2] == "| `smollm2-135m` |  | 20.00 | 0.2500 | 60.0 ± 10.0 | 400 | 50.0 |"
    assert lines[3] == "| `int4:g32@50%+bfp:g32:m7` | wanda | 20.00 | 0.2500 | 60.0 ± 10.0 | 100 | 50.0 |"


def test_a_row_that_is_not_there_is_refused(quality, capsys):
    with pytest.raises(SystemExit):
        quality.call("int3:g32")
    assert "there is no row int3:g32; there are smollm2-135m, int8:g32+bfp:g32:m7" in capsys.readouterr().err
