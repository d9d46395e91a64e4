import json
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_cli import assert_refused

from tilepress.cli import reproduce as reproducing
from tilepress.cluster import InProcess
from tilepress.cluster import batch as batches
from tilepress.paper import Item, NotPossible, Ours, Published, registry

KEYS = {"metric", "labels", "value", "unit", "origin", "machine", "command", "version"}
ADDED = {"item", "row", "column", "paper", "deviation", "state", "evidence", "note"}
PUBLISHED = [Published("r", column, value, "ms", "table 1") for column, value in (("a", 1.0), ("b", 2.0))]


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Four items, in an empty folder, and the names of those that ran with the options they got."""
    ran = []

    def good(track, *, windows: int = 2, text: str = "mine"):
        ran.append(f"good {windows}")
        for column in track(["a", "b"], "columns"):
            yield Ours("r", column, 1.05)

    def impossible(track):
        ran.append("impossible")
        raise NotPossible("it wants an H200")

    def broken(track):
        ran.append("broken")
        yield Ours("r", "a", 1.0)
        raise ValueError("a weight is NaN")

    def odd(track):
        ran.append("odd")
        raise KeyError("layers")

    made = [
        Item(f"mine/{experiment.__name__}", "a table", "simulated", PUBLISHED, experiment, ("mind the gap",), 300)
        for experiment in (good, impossible, broken, odd)
    ]
    monkeypatch.setattr(registry, "PAPERS", (made,))
    monkeypatch.chdir(tmp_path)
    return ran


def test_a_table_for_people(call, runs):
    done = call("reproduce", "mine/good", "mine/impossible")
    assert done.returncode == 0
    assert done.stdout.startswith("mine/good: held-out 1 of 2 match; furthest by -47.5 %")
    assert "it wants an H200" in done.stdout and "mind the gap" in done.stdout
    assert "2 items: held-out 1 of 2 match, 2 not possible here; furthest by -47.5 %" in done.stdout


def test_records_for_machines(call, runs):
    done = call("reproduce", "mine/good", "--set", "windows=5", "--json")
    records = json.loads(done.stdout)
    assert runs == ["good 5"] and all(one.keys() == KEYS | ADDED for one in records)
    assert [(one["column"], one["state"], one["origin"]) for one in records] == [
        ("a", "matches", "simulated"),
        ("b", "deviates", "simulated"),
    ]


def test_failures_are_told_and_the_others_run(call, runs):
    done = call("reproduce", "all", "--json")
    assert done.returncode == 1 and len(json.loads(done.stdout)) == 4
    assert "error: mine/broken failed: a weight is NaN" in done.stderr
    assert "error: mine/odd failed: KeyError: 'layers'" in done.stderr
    assert runs == ["good 2", "impossible", "broken", "odd"]
    shown = call("reproduce", "all")
    assert shown.returncode == 1 and "; 2 failed: mine/broken, mine/odd" in shown.stdout


def test_all_items_go_on_where_they_stopped(call, runs):
    """What failed is tried again; what is finished is not."""
    first = call("reproduce", "all", "--json")
    saved = Path("reproductions.json").read_text()
    assert json.loads(saved) == json.loads(first.stdout)
    assert "Finished items are kept in reproductions.json" in first.stderr
    again = call("reproduce", "all", "--json")
    assert runs[4:] == ["broken", "odd"] and again.stdout == first.stdout
    assert "2 not possible here" in call("reproduce", "--list").stdout


def test_an_interrupt_loses_nothing(call, runs, monkeypatch):
    def endless(track):
        for _ in track(range(3), "steps"):
            signal.raise_signal(signal.SIGINT)
            yield Ours("r", "a", 1.0)

    (made,) = registry.PAPERS
    monkeypatch.setattr(registry, "PAPERS", ([made[0], Item("mine/long", "", "exact", PUBLISHED, endless), made[1]],))
    done = call("reproduce", "all", "--json")
    assert done.returncode == 130 and runs == ["good 2"] and done.stdout == ""
    assert done.stderr.splitlines() == [
        "Finished items are kept in reproductions.json; the same command goes on from there.",
        "tilepress: interrupted",
    ]
    assert {one["item"] for one in json.loads(Path("reproductions.json").read_text())} == {"mine/good"}
    monkeypatch.setattr(registry, "PAPERS", ([made[0], made[1]],))
    assert call("reproduce", "all").returncode == 0 and runs == ["good 2", "impossible"]


def test_a_run_goes_on_where_it_stopped(call, runs, tmp_path):
    path = tmp_path / "records.json"
    assert "held-out" in call("reproduce", "--list", "--records", path).stdout
    call("reproduce", "mine/good", "--records", path)
    call("reproduce", "mine/good", "mine/impossible", "--records", path)
    assert runs == ["good 2", "impossible"]
    listing = call("reproduce", "--list", "--records", path).stdout
    assert "1 of 2 match" in " ".join(listing.split()) and "2 not possible here" in " ".join(listing.split())
    assert "Of 2 items that were run: held-out 1 of 2 match, 2 not possible here" in listing
    path.write_text("[1")
    assert "holds no reproductions" in call("reproduce", "mine/good", "--records", path).stderr
    assert path.read_text() == "[1"


def test_other_options_are_another_run(call, runs, tmp_path):
    path = tmp_path / "records.json"
    tell = ["--set", "windows=4", "--set", "text=a b"]
    for options in ([], tell, tell, []):
        call("reproduce", "mine/good", "--records", path, *options)
    assert runs == ["good 2", "good 4", "good 2"]
    call("reproduce", "mine/good", "--records", path, *tell)
    commands = {one["command"] for one in json.loads(path.read_text())}
    assert commands == {"tilepress reproduce mine/good --set windows=4 --set 'text=a b'"}


def test_a_list_that_fits_a_terminal(call, runs):
    listing = call("reproduce", "--list").stdout
    assert max(map(len, listing.splitlines())) <= 100
    assert "mine: 4 items, 20 min" in listing and "5 min" in listing and "windows" not in listing
    assert runs == []


def test_real_items_fit_a_terminal(call):
    assert max(map(len, call("reproduce", "--list").stdout.splitlines())) <= 100


def test_an_item_in_detail(call, runs):
    shown = call("reproduce", "--list", "mine/good").stdout
    assert "--set windows=2" in shown and "table 1" in shown and "mind the gap" in shown and "not run" in shown
    assert "mine/impossible" not in shown and runs == []


class Elsewhere:
    """An executor that is not this process, as far as anybody can tell."""

    workers = 2

    def __init__(self, ended):
        self.ended = ended

    def run(self, batches):
        for batch, outcomes in InProcess().run(batches):
            self.ended.append(batch.command)
            yield batch, outcomes


def test_workers_do_what_is_not_timed_and_the_rest_comes_after(call, runs, monkeypatch):
    (made,) = registry.PAPERS
    timed = replace(made[0], name="mine/timed", kind="measured here")
    quick = replace(made[1], name="mine/quick", seconds=1)
    items = [timed, quick, *made]
    monkeypatch.setattr(registry, "PAPERS", (items,))
    expected = call("reproduce", "all", "--json").stdout
    Path("reproductions.json").unlink()
    elsewhere = []
    monkeypatch.setattr(reproducing, "chosen_executor", lambda *_: nullcontext(Elsewhere(elsewhere)))
    runs.clear()
    done = call("reproduce", "all", "--json")
    assert done.returncode == 1 and done.stdout == expected
    assert runs == ["good 2", "impossible", "broken", "odd", "impossible", "good 2"]  # timed ones last
    assert [command.split()[-1] for command in elsewhere] == [*(one.name for one in made), "mine/quick"]
    assert "error: mine/broken failed: a weight is NaN\n" in done.stderr
    assert "error: mine/odd failed: KeyError: 'layers'\n" in done.stderr
    call("reproduce", "all")
    assert runs[6:] == ["broken", "odd"]  # what is finished is not done again


@pytest.mark.slow
def test_processes_give_the_same_records(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    items = ("harmonia/storage", "anda/table2-arithmetic")
    alone = call("reproduce", *items, "--json")
    shared = call("reproduce", *items, "--json", "--workers", 2)
    assert alone.returncode == 0 and shared.stdout == alone.stdout
    assert call("reproduce", *items).stdout.count("held-out") >= 2


def test_no_cluster_is_one_sentence(call, runs):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    done = call("reproduce", "all", "--ray", "127.0.0.1:1")
    assert_refused(done, "no Ray cluster answers at 127.0.0.1:1")
    assert runs == []


def test_another_version_on_a_worker_stops_the_run(call, runs, monkeypatch):
    """What was finished before stays, and is said to."""
    call("reproduce", "mine/good", "--records", "reproductions.json")
    monkeypatch.setattr(batches, "__version__", "0.0.1")
    done = call("reproduce", "all", "--workers", 2)
    keeps, message = done.stderr.splitlines()
    assert done.returncode != 0 and keeps.startswith("Finished items are kept in reproductions.json")
    assert "the command was started by 0.0.1: install the same version on every machine" in message


def test_errors(call, runs):
    assert "did you mean 'mine/good'" in call("reproduce", "mine/god").stderr
    assert "needs NAME=VALUE" in call("reproduce", "mine/good", "--set", "windows").stderr
    assert "there are: text, windows" in call("reproduce", "mine/good", "--set", "device=cuda").stderr
    assert "valid integer" in call("reproduce", "mine/good", "--set", "windows=x").stderr
    assert runs == []
