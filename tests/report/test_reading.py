import json

import pytest

from tilepress.records import to_json
from tilepress.report import RecordsError, read_records

from .samples import everything

OLD = {"name": "a", "value": 1.5, "unit": "s", "origin": "measured", "machine": "m", "command": "c"}
GOOD = {"metric": "a", "labels": {"b": 1, "c": "d"}, **{key: value for key, value in OLD.items() if key != "name"}}
COMPARED = {**GOOD, "item": "p/i", "row": "r", "column": "c", "paper": 1, "deviation": 0.5, "state": "deviates"}
COMPARED["evidence"] = "held-out"


def test_what_was_written_is_read_back_once(tmp_path):
    records = everything()
    (tmp_path / "deep").mkdir()
    for name in ("a.json", "deep/b.json"):
        (tmp_path / name).write_text(to_json(records), "utf-8")
    assert read_records([tmp_path]) == records
    assert read_records([tmp_path / "a.json", tmp_path / "deep"]) == records
    assert read_records([]) == []


def test_a_note_may_be_missing(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([COMPARED]))
    (record,) = read_records([tmp_path / "a.json"])
    assert record.note == "" and record.paper == 1


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "a.json is not JSON"),
        ("[" * 2_000, "a.json cannot be read: it has more lists and objects than records could have"),
        ('[{"value": NaN}]', "NaN is no JSON number"),
        ("{}", "holds no array of records"),
        ("[1]", "record 1: is no object with metric, labels, value"),
        ([GOOD, {"metric": "a"}], "record 2: lacks labels, value, unit, origin, machine, command"),
        ([OLD], "record 1: is of an older version, which gave a name and no labels: measure it again"),
        ([{**GOOD, "colour": 1}], "has 'colour', which no record has"),
        ([{**GOOD, "metric": 3}], "metric is a text, not '3'"),
        ([{**GOOD, "labels": {"a": None}}], "labels is an object of texts and numbers, not"),
        ([{**GOOD, "labels": {"a": True}}], "labels is an object of texts and numbers, not"),
        ([{**GOOD, "labels": ["a"]}], "labels is an object of texts and numbers, not"),
        ([{**GOOD, "value": [1]}], "value is a text, a number, a truth or null"),
        ([{**GOOD, "origin": "guessed"}], "origin is one of measured, model, simulated, paper, not 'guessed'"),
        ([{**COMPARED, "state": "fine"}], "state is null or one of matches"),
        ([{**COMPARED, "evidence": "good"}], "evidence is null or one of held-out, one-sided, derived"),
        ([{**COMPARED, "deviation": True}], "deviation is a number or null"),
        ([{**COMPARED, "origin": []}], "origin is one of"),
    ],
)
def test_what_is_no_file_of_records(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(RecordsError, match=r"a\.json") as error:
        read_records([path])
    assert message in str(error.value)


def test_bytes_that_are_no_text_and_folders_without_records(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordsError, match=r"a\.json cannot be read: it is not text in UTF-8"):
        read_records([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordsError, match=r"empty has no \.json files"):
        read_records([tmp_path / "empty"])
    with pytest.raises(FileNotFoundError):
        read_records([tmp_path / "none.json"])
