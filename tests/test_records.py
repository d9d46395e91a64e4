import json
import math
import pickle

import pytest

from tilepress.records import Record, RecordsError, Reproduction, Tally, from_json, machine, tally, to_json

LABELS = {"format": "int4:g32", "density": 0.5, "batch": 1}


def record(value, labels=LABELS):
    return Record("pack_time", labels, value, "s", "measured", "a machine", "tilepress bench pack")


def test_records_are_an_array_of_objects_with_the_agreed_keys():
    (fields,) = json.loads(to_json([record(0.25)]))
    assert list(fields.items()) == [
        ("metric", "pack_time"),
        ("labels", LABELS),
        ("value", 0.25),
        ("unit", "s"),
        ("origin", "measured"),
        ("machine", "a machine"),
        ("command", "tilepress bench pack"),
    ]
    assert json.loads(to_json([])) == []


def test_figures_that_json_cannot_hold_become_null():
    for value in (math.inf, -math.inf, math.nan):
        assert json.loads(to_json([record(value)]), parse_constant=lambda _: 1 / 0)[0]["value"] is None


def test_reproductions_have_the_agreed_keys_after_those_of_records():
    compared = ("deca/table2", "row", "column", 1.5, -0.5, "deviates", "held-out", "a note")
    one = Reproduction("reproduction", {}, 0.75, "x", "simulated", "a machine", "c", *compared)
    (fields,) = json.loads(to_json([one]))
    assert list(fields)[7:] == ["item", "row", "column", "paper", "deviation", "state", "evidence", "note"]
    assert from_json(to_json([one, record(0.25)]), "text") == [one, record(0.25)]


def test_cells_are_counted_by_their_evidence():
    def cell(evidence, state):
        return Reproduction("reproduction", {}, 1, "x", "simulated", "", "", "a/b", "r", "c", 1, 0.0, state, evidence)

    assert tally([]) == {"held-out": Tally()}
    cells = [cell("fitted", "matches"), cell("held-out", "deviates"), cell("held-out", "matches"), cell(None, None)]
    of_kind = tally([*cells, cell("fitted", "not possible here")])
    assert list(of_kind.items()) == [("held-out", Tally(1, 1)), ("fitted", Tally(1, 0, 1))]
    assert str(of_kind["held-out"]) == "1 of 2 match" and of_kind["fitted"].compared == 1


def test_records_are_equal_and_hashed_by_their_labels_whatever_their_order():
    turned = dict(reversed(LABELS.items()))
    assert record(1, turned) == record(1) and hash(record(1, turned)) == hash(record(1))
    assert record(1, {**LABELS, "batch": 2}) != record(1)
    assert len({record(1), record(1, turned), record(1, {})}) == 2


def test_labels_cannot_be_changed_and_travel():
    given = dict(LABELS)
    one = record(1, given)
    given["batch"] = 7
    assert one.labels == LABELS and not hasattr(one.labels, "__setitem__")
    assert pickle.loads(pickle.dumps(one)) == one
    assert str(one.labels) == "format int4:g32, density 0.5, batch 1"


def test_what_an_older_version_wrote_is_refused():
    old = '[{"name": "a.b", "value": 1, "unit": "", "origin": "model", "machine": "m", "command": "c"}]'
    with pytest.raises(RecordsError, match=r"text, record 1: is of an older version, .* measure it again"):
        from_json(old, "text")


def test_the_machine_is_named():
    assert "CPUs" in machine()
