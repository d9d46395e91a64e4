"""The tables of README and docs say what the commands say; tests/docs runs its commands and examples."""

import importlib
import sys
from pathlib import Path

import pytest

from tilepress import __version__, _builds
from tilepress.records import Record, to_json

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def table(monkeypatch):
    """The script, which finds what lies beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("kept_results", "readme_table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("readme_table")


def test_the_tables_are_those_of_the_command_and_the_results(table):
    for page in table.PAGES:
        assert table.filled(page) == page.read_text(), "run `make readme`"


def kept(folder, *versions):
    records = [Record("time", {"n": n}, float(n), "s", "measured", "m", "c", version=v) for n, v in enumerate(versions)]
    (folder / "2026-11-18-here.json").write_text(to_json(records))


def read(table, folder, monkeypatch):
    monkeypatch.setattr(sys.modules["kept_results"], "RESULTS", folder)
    reader = table.Reader()
    return reader.latest("here", folder), reader.foot()


def test_figures_of_older_builds_are_left_out_where_there_are_newer_ones(table, tmp_path, monkeypatch):
    monkeypatch.setattr(_builds, "CHECKOUT", tmp_path)
    kept(tmp_path, "", "0.1.0", __version__)
    values, foot = read(table, tmp_path, monkeypatch)
    assert list(values.values()) == [2.0] and values.mark == ""
    assert "From [2026-11-18-here.json](RESULTS/2026-11-18-here.json)." in foot
    assert "2 figures of older builds are left out." in foot and "Older build" not in foot


def test_figures_of_older_builds_are_marked_where_there_is_nothing_else(table, tmp_path, monkeypatch):
    kept(tmp_path, "", "")
    values, foot = read(table, tmp_path, monkeypatch)
    assert list(values.values()) == [0.0, 1.0] and values.mark == "older build (2026-11-18)"
    assert "here.json) (older build). *Older build*: kernels have changed since" in foot and "left out" not in foot


def test_a_table_of_nothing_has_no_foot(table, tmp_path, monkeypatch):
    assert read(table, tmp_path, monkeypatch) == ({}, "")
