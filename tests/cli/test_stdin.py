"""`-` in the place of a file."""

import io
import json
import sys

import pytest

from tilepress.cli.compress import read_options
from tilepress.cli.stdin import prompts, read_stdin
from tilepress.records import Record, to_json

RECORDS = [Record("perplexity", {"model": "int4"}, 20.5, "", "measured", "here", "tilepress eval int4 --json")]


@pytest.fixture
def typed(monkeypatch):
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_records(typed, call, tmp_path):
    typed(to_json(RECORDS).encode())
    done = call("report", "-", "--html", tmp_path / "r.html", "--json")
    assert [one["value"] for one in json.loads(done.stdout)] == [20.5] and "int4" in (tmp_path / "r.html").read_text()
    typed(b"{")
    assert "standard input is not JSON" in call("report", "-").stderr


def test_a_recipe(typed):
    from pathlib import Path

    typed(b'[weights]\nformat = "int8:row"\n')
    assert read_options(Path("-"), {"weights": {"density": 0.5}}).weights.format == "int8:row"
    typed(b"weights = \n")
    with pytest.raises(ValueError, match="standard input is not TOML"):
        read_options(Path("-"), {})


def test_prompts(typed):
    typed("Nenne\r\neinen Fluß.\r\n".encode())
    assert prompts(["a", "-"]) == ["a", "Nenne\neinen Fluß."]
    with pytest.raises(ValueError, match="one of the prompts only"):
        prompts(["-", "-"])


@pytest.mark.parametrize(
    "data, message", [(b"", "standard input is empty, and a text was"), (b"a\xff", r"not text in UTF-8 \(byte 1")]
)
def test_what_is_no_text_is_refused(typed, data, message):
    typed(data)
    with pytest.raises(ValueError, match=message):
        read_stdin("a text")
