import json
import math

from tilepress.records import Record, machine, to_json


def record(value):
    return Record("pack.time", value, "s", "measured", "a machine", "tilepress bench pack")


def test_records_are_an_array_of_objects_with_the_agreed_keys():
    (found,) = json.loads(to_json([record(0.25)]))
    assert found == {
        "name": "pack.time",
        "value": 0.25,
        "unit": "s",
        "origin": "measured",
        "machine": "a machine",
        "command": "tilepress bench pack",
    }
    assert json.loads(to_json([])) == []


def test_figures_that_json_cannot_hold_become_null():
    for value in (math.inf, -math.inf, math.nan):
        assert json.loads(to_json([record(value)]), parse_constant=lambda _: 1 / 0)[0]["value"] is None


def test_the_machine_is_named():
    assert "CPUs" in machine()
