"""`tilepress doctor --tune`: this machine's row limits, measured, stored and forgotten again."""

import json
from functools import partial

import pytest

from tilepress import _native


@pytest.fixture
def tune(call, little_tuning, monkeypatch):
    """Runs `tilepress doctor`."""
    monkeypatch.delenv("TILEPRESS_TUNING")
    return partial(call, "doctor")


def test_limits_are_stored_shown_and_removed(tune, tmp_path):
    assert "row limits" in (plain := tune().stdout) and "built-in" in plain
    done = tune("--tune", "--threads", 1)
    assert done.returncode == 0 and "limits measured" in done.stdout
    (stored,) = (tmp_path / "cache/tuning").iterdir()
    table = json.loads(stored.read_text())
    assert table["threads"] == 1 and table["isa"] == _native.active_isa()
    assert {weights for _, weights, _, _ in table["limits"]} == {"dense integer", "sparse integer"}
    assert stored.name in tune().stdout
    assert "built-in" in tune("--reset-tuning").stdout and not stored.exists()


def test_limits_as_records(tune):
    records = json.loads(tune("--tune", "--json").stdout)
    limits = [record for record in records if record["metric"] == "row_limit"]
    assert limits and {record["unit"] for record in limits} == {"rows"}
    built_in = {limit[:3]: limit[3] for limit in _native.row_limits(_native.active_isa(), True)}
    for record in limits:
        of = tuple(record["labels"][name] for name in ("operation", "weights", "activations"))
        assert record["value"] in {0, 1, 4, built_in[of]}  # `little_tuning` takes batches of 1 and 4


def test_tune_and_reset_exclude_each_other(tune):
    done = tune("--tune", "--reset-tuning")
    assert done.returncode and "--tune and --reset-tuning exclude each other" in done.stderr
