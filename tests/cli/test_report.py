import json

import pytest

from tilepress.records import Record, to_json

JUDGED = {"model": "int4", "text": "wikitext2"}
RECORDS = [
    Record("perplexity", JUDGED, 20.5, "", "measured", "here", "tilepress eval int4 --json"),
    Record("loss", {"model": "base", "step": 1}, 0.5, "%", "measured", "here", "tilepress search base --json"),
]


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.json"
    path.write_text(to_json(RECORDS))
    return path


def test_a_page_markdown_and_csv(call, records, tmp_path):
    page, text, folder = tmp_path / "r.html", tmp_path / "r.md", tmp_path / "csv"
    done = call("report", records, "--html", page, "--markdown", text, "--csv", folder, "--title", "Mine & yours")
    assert done.returncode == 0 and f"{page}: " in done.stdout and not done.stderr
    assert "<h1>Mine &amp; yours</h1>" in page.read_text() and "2 records of 1 machine<" in page.read_text()
    assert "| int4 | 20.5 |" in text.read_text()
    assert (folder / "quality-quality-on-wikitext2.csv").read_text().splitlines() == ["model,perplexity", "int4,20.5"]


def test_the_page_has_a_name_where_none_is_given(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("report").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_records_of_all_files_together(call, records, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("report", records, records, "--json")
    assert [one["value"] for one in json.loads(done.stdout)] == [20.5, 0.5]
    assert [path.name for path in tmp_path.iterdir()] == ["records.json"]


@pytest.mark.parametrize(
    "content, message", [("{", "bad.json is not JSON"), ("[3]", "bad.json, record 1: is no object")]
)
def test_files_that_hold_no_records_lose_nothing(call, tmp_path, content, message):
    (tmp_path / "bad.json").write_text(content)
    (tmp_path / "r.html").write_text("what was there")
    done = call("report", tmp_path / "bad.json", "--html", tmp_path / "r.html")
    assert done.returncode == 1 and message in done.stderr and not done.stdout
    assert (tmp_path / "r.html").read_text() == "what was there"


def test_files_and_folders_that_are_not_there(call, tmp_path):
    assert "none.json: No such file" in call("report", tmp_path / "none.json").stderr
    assert call("report", "--html", tmp_path / "no" / "r.html").returncode == 1
