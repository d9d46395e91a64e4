import json

import pytest

from tilepress.paper import Item, NotPossible, Ours, published_table, registry

KEYS = {"name", "value", "unit", "origin", "machine", "command"}
ADDED = {"item", "row", "column", "paper", "deviation", "state", "note"}
PUBLISHED = published_table("table 1", "ms", ["a", "b"], {"r": [1.0, 2.0]})


@pytest.fixture
def runs(monkeypatch):
    """Three items, and the names of those that ran with what they were told."""
    ran = []

    def good(track, *, windows: int = 2):
        ran.append(f"good {windows}")
        for column in track(["a", "b"], "columns"):
            yield Ours("r", column, 1.05)

    def impossible(track):
        ran.append("impossible")
        raise NotPossible("it wants an H200")

    def broken(track):
        ran.append("broken")
        raise ValueError("a weight is NaN")

    made = [
        Item(f"mine/{experiment.__name__}", "a table", "simulated", PUBLISHED, experiment, ("mind the gap",))
        for experiment in (good, impossible, broken)
    ]
    monkeypatch.setattr(registry, "PAPERS", (made,))
    return ran


def test_a_table_for_people(call, runs):
    done = call("reproduce", "mine/good", "mine/impossible")
    assert done.returncode == 0
    assert "1 matches, 1 deviates (by up to -47.5 %)" in done.stdout
    assert "it wants an H200" in done.stdout and "mind the gap" in done.stdout
    assert "2 items: 1 matches, 1 deviates (by up to -47.5 %), 2 not possible here" in done.stdout


def test_records_for_machines(call, runs):
    done = call("reproduce", "mine/good", "--set", "windows=5", "--json")
    found = json.loads(done.stdout)
    assert runs == ["good 5"] and all(one.keys() == KEYS | ADDED for one in found)
    assert [(one["column"], one["state"], one["origin"]) for one in found] == [
        ("a", "matches", "simulated"),
        ("b", "deviates", "simulated"),
    ]


def test_a_failure_is_told_and_the_others_run(call, runs):
    done = call("reproduce", "all", "--json")
    assert done.returncode == 1 and "mine/broken failed: a weight is NaN" in done.stderr
    assert len(json.loads(done.stdout)) == 4 and runs == ["good 2", "impossible", "broken"]


def test_a_run_goes_on_where_it_stopped(call, runs, tmp_path):
    path = tmp_path / "records.json"
    assert "not run" in call("reproduce", "--list", "--records", path).stdout
    call("reproduce", "mine/good", "--records", path)
    call("reproduce", "mine/good", "mine/impossible", "--records", path)
    assert runs == ["good 2", "impossible"]
    listing = call("reproduce", "--list", "--records", path).stdout
    assert "1 matches, 1 deviates" in listing and "windows=2" in listing and "2 not possible here" in listing
    path.write_text("[1")
    assert "holds no reproductions" in call("reproduce", "mine/good", "--records", path).stderr
    assert path.read_text() == "[1"


def test_errors(call, runs):
    assert "did you mean 'mine/good'" in call("reproduce", "mine/god").stderr
    assert "wants NAME=VALUE" in call("reproduce", "mine/good", "--set", "windows").stderr
    assert "there are: windows" in call("reproduce", "mine/good", "--set", "device=cuda").stderr
    assert "valid integer" in call("reproduce", "mine/good", "--set", "windows=x").stderr
    assert runs == []
