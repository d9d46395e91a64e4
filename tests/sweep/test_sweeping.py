"""Sweeps: what is finished is a file, is never done twice, and stays whatever happens."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import functions
from tilepress import _files
from tilepress.cluster import InProcess, LocalExecutor, local
from tilepress.cluster.batch import name_of
from tilepress.records import from_json
from tilepress.sweep import SweepError, read_grid, sweep, sweeping
from tilepress.sweep import folder as folders

ROOT = Path(__file__).parents[2]
SMALL = 56 * 512 * 8
GRID = f"""kind = "simulate deca"
fixed.parameters = {SMALL}
[grid]
width = [8, 32]
queue = [2, 8]
"""


class Counting:
    """An executor that keeps what it was given; `ended` is called after each batch."""

    workers = 1

    def __init__(self, ended=lambda: None):
        self.points, self.ended = [], ended

    def run(self, batches):
        for batch in batches:
            self.points += batch.points
            yield from InProcess().run([batch])
            self.ended()


@pytest.fixture
def grid(tmp_path):
    return write_grid(tmp_path, GRID)


def write_grid(folder, text):
    (folder / "grid.toml").write_text(text)
    return read_grid(folder / "grid.toml")


def figures(swept):
    """What points give, without the command that gave it."""
    return {
        name: [(one.metric, one.labels, one.value, one.unit, one.origin) for one in records]
        for name, records in swept.records.items()
    }


def in_files(folder):
    """All records of a folder's files, by point."""
    by_point = {}
    for path in folder.glob("*.json"):
        for record in from_json(path.read_text(), path):
            by_point.setdefault(record.labels["point"], []).append(record)
    return by_point


def test_every_point_has_its_records_in_a_file(grid, tmp_path):
    swept = sweep(grid, tmp_path / "out", InProcess(), "tilepress sweep")
    assert list(swept.records) == [name_of(point) for point in grid.points] and swept.computed == 4
    assert in_files(tmp_path / "out") == swept.records
    for point, records in zip(grid.points, swept.records.values(), strict=True):
        assert [one.metric for one in records] == ["time", "rate", "area", "power"]
        assert all(one.labels["width"] == point["width"] and one.command == "tilepress sweep" for one in records)


def test_processes_give_what_this_process_gives(grid, tmp_path):
    alone = sweep(grid, tmp_path / "one", InProcess())
    assert figures(sweep(grid, tmp_path / "two", LocalExecutor(1))) == figures(alone)


def test_a_sweep_goes_on_where_it_was(grid, tmp_path):
    def stop():
        raise KeyboardInterrupt

    first = Counting(stop)
    with pytest.raises(KeyboardInterrupt):
        sweep(grid, tmp_path / "out", first)
    kept = in_files(tmp_path / "out")
    assert [*kept] == [name_of(first.points[0])]
    second = Counting()
    swept = sweep(grid, tmp_path / "out", second)
    assert [*first.points, *second.points] == list(grid.points)
    assert kept.items() <= swept.records.items() and in_files(tmp_path / "out") == swept.records
    third = Counting()
    assert sweep(grid, tmp_path / "out", third).records == swept.records and third.points == []


def test_a_larger_grid_computes_only_what_is_new(grid, tmp_path):
    sweep(grid, tmp_path / "out", InProcess())
    larger = write_grid(tmp_path, GRID.replace("[2, 8]", "[1, 2, 8]"))
    counting = Counting()
    swept = sweep(larger, tmp_path / "out", counting)
    assert [point["queue"] for point in counting.points] == [1, 1] and len(swept.records) == 6
    smaller = write_grid(tmp_path, GRID.replace("[2, 8]", "[8]"))
    assert len(sweep(smaller, tmp_path / "out", InProcess()).records) == 2


def test_points_that_fail_are_named_and_tried_again(tmp_path):
    grid = write_grid(tmp_path, GRID.replace("[grid]", '[grid]\nmachine = ["spr-hbm", "h100-sxm"]'))
    swept = sweep(grid, tmp_path / "out", InProcess())
    assert len(swept.records) == len(swept.failures) == 4 and swept.done == 8
    assert all("h100-sxm" in reason for reason in swept.failures.values())
    again = Counting()
    assert sweep(grid, tmp_path / "out", again).failures == swept.failures
    assert all(point["machine"] == "h100-sxm" for point in again.points)


def test_a_killed_worker_loses_nothing_and_doubles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sweeping, "RUN", f"{functions.__name__}:square_of_queue")
    grid = write_grid(tmp_path, GRID.replace("[2, 8]", str(list(range(1, 21)))))
    started, killed = [], []

    class Remembered(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    def kill_one(swept):
        if swept.computed and not killed:
            killed.append(started[-1])
            os.kill(killed[0].pid, signal.SIGKILL)

    monkeypatch.setattr(local.subprocess, "Popen", Remembered)
    swept = sweep(grid, tmp_path / "out", LocalExecutor(2), track=kill_one)
    assert not swept.failures and killed[0].wait() == -signal.SIGKILL and swept.computed == 40
    assert figures(swept) == figures(sweep(grid, tmp_path / "alone", InProcess()))
    assert {name: len(records) for name, records in in_files(tmp_path / "out").items()} == dict.fromkeys(
        map(name_of, grid.points), 1
    )
    assert all(one.poll() is not None for one in started)


def test_a_full_disk_leaves_what_is_finished(grid, tmp_path, monkeypatch):
    written = []

    def write(path, text):
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        _files.write_text(path, text)

    monkeypatch.setattr(folders, "write_text", write)
    with pytest.raises(OSError, match="No space left on device"):
        sweep(grid, tmp_path / "out", InProcess())
    assert len(in_files(tmp_path / "out")) == 1 and sorted((tmp_path / "out").glob("*.json")) == written
    monkeypatch.undo()
    assert sweep(grid, tmp_path / "out", InProcess()).computed == 3


def test_a_folder_is_of_one_sweep_at_a_time(grid, tmp_path):
    (tmp_path / "out").mkdir()
    with (tmp_path / "out/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SweepError, match=r"another sweep writes to .*out: wait for it"):
            sweep(grid, tmp_path / "out", InProcess())
    assert sweep(grid, tmp_path / "out", InProcess()).computed == 4


@pytest.mark.parametrize("text", ["[", '{"a": 1}', '[{"metric": 1}]', "\xff"])
def test_a_file_that_is_none_of_ours_is_named(grid, tmp_path, text):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/0123456789abcdef.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(SweepError, match=r"0123456789abcdef\.json is no file of a sweep: move it away"):
        sweep(grid, tmp_path / "out", InProcess())


def test_other_files_of_the_folder_stay(grid, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.json").write_text("mine")
    assert sweep(grid, tmp_path / "out", InProcess()).computed == 4
    assert (tmp_path / "out/notes.json").read_text() == "mine"


def test_importing_is_light():
    code = "import sys, json, tilepress.sweep; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numba", "ray", "transformers"} & {*json.loads(done.stdout)}
