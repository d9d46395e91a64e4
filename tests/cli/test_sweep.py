"""`tilepress sweep`, as a user types it."""

import errno
import json
import os
from pathlib import Path

import pytest
from tests.cli.test_cli import assert_refused
from tests.cluster import functions

from tilepress.cli.sweep import front_lines
from tilepress.cluster import InProcess
from tilepress.cluster import batch as batches
from tilepress.records import from_json
from tilepress.sweep import folder as folders
from tilepress.sweep import read_grid, sweep, sweeping

ROOT = Path(__file__).parents[2]

SMALL = 56 * 512 * 8
GRID = f"""kind = "simulate deca"
fixed.parameters = {SMALL}
[grid]
weights = ["mxfp4", "bf8"]
width = [8, 32]
tables = [1, 8]
"""


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def test_a_table_of_all_points_with_the_front_marked(grid, tmp_path, call):
    done = call("sweep", grid, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(("mxfp4", "bf8"))]
    marked = [row for row in rows if row[-1] == "yes"]
    assert len(rows) == 8 and 2 <= len(marked) < 8
    assert lines[0].endswith(f"grid.toml: {len(marked)} of 8 points are on the Pareto front of area and time")
    heads = next(line for line in lines if line.startswith("weights"))
    assert heads.index("area, mm2") < heads.index("time, ms") < heads.index("rate, TFLOPS")


def test_records_are_those_of_the_folder(grid, tmp_path, call):
    done = call("sweep", grid, "-o", tmp_path / "out", "--json")
    printed = from_json(done.stdout, "printed")
    kept = [one for path in (tmp_path / "out").glob("*.json") for one in from_json(path.read_text(), path)]
    assert len(printed) == 8 * 4 and {*printed} == {*kept}
    again = call("sweep", grid, "-o", tmp_path / "out", "--json")
    assert from_json(again.stdout, "printed") == printed


def test_workers_and_a_page(grid, tmp_path, call, workers_here):
    done = call("sweep", grid, "-o", tmp_path / "out", "--workers", 2, "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "The Pareto front: simulate deca" in page and "Time by area" in page
    alone = call("sweep", grid, "-o", tmp_path / "alone", "--workers", 1)
    assert workers_here == [(2, None), (1, None)]
    assert alone.stdout == done.stdout


def test_many_points_show_the_front_alone(grid, tmp_path, call):
    grid.write_text(GRID + "queue = [1, 2, 3, 4, 5, 6, 7]\n")
    lines = call("sweep", grid, "-o", tmp_path / "out", "--workers", 1).stdout.splitlines()
    rows = [line for line in lines if line.startswith(("mxfp4", "bf8"))]
    assert "of 56 points" in lines[0] and rows and all(row.endswith("yes") for row in rows)


def test_the_front_so_far(grid, tmp_path):
    seen = []
    swept = sweep(read_grid(grid), tmp_path / "out", InProcess(), track=lambda swept: seen.append(front_lines(swept)))
    assert seen[0] == [] and len(seen) == 5 and seen[-1] == front_lines(swept)
    assert all(line.startswith("area ") and ", time 0.0" in line and "weights " in line for line in seen[-1])


def test_failures_are_named_once_and_the_others_stay(grid, tmp_path, call):
    grid.write_text(GRID + 'machine = ["spr-hbm", "h100-sxm"]\n')
    done = call("sweep", grid, "-o", tmp_path / "out", "--json")
    assert done.returncode == 1 and len(json.loads(done.stdout)) == 8 * 4
    [line] = done.stderr.splitlines()
    assert line.startswith("tilepress: error: 8 points of 16 failed: h100-sxm says nothing of its caches")


def test_what_is_wrong_is_one_sentence(grid, tmp_path, call):
    out = ("-o", tmp_path / "out")
    assert_refused(call("sweep", tmp_path / "none.toml", *out), "none.toml: No such file or directory")
    grid.write_text(GRID.replace("width", "widht"))
    assert_refused(call("sweep", grid, *out), "grid.toml: widht: there is no such field")
    assert not (tmp_path / "out").exists()


def test_no_cluster_is_one_sentence(grid, tmp_path, call):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    done = call("sweep", grid, "-o", tmp_path / "out", "--ray", "127.0.0.1:1")
    assert_refused(done, "no Ray cluster answers at 127.0.0.1:1")


def test_another_version_on_a_worker_is_one_sentence(grid, tmp_path, call, monkeypatch):
    monkeypatch.setattr(batches, "__version__", "0.0.1")
    done = call("sweep", grid, "-o", tmp_path / "out", "--workers", 2)
    keeps, message = done.stderr.splitlines()
    assert done.returncode != 0 and "the same command goes on from there" in keeps
    assert "the command was started by 0.0.1: install the same version on every machine" in message


def test_a_full_disk_of_a_worker_is_one_sentence(grid, tmp_path, call, monkeypatch):
    """Points whose worker has no room left fail; the others stay."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sweeping, "RUN", f"{functions.__name__}:fill_disk_by_queue")
    grid.write_text(GRID + "queue = [2, 8]\n")
    done = call("sweep", grid, "-o", tmp_path / "out", "--workers", 2)
    assert done.returncode == 1
    assert done.stderr == "tilepress: error: 8 points of 16 failed: /tmp/somewhere: No space left on device\n"


def test_a_full_disk_here_is_one_sentence(grid, tmp_path, call, monkeypatch):
    def write(path, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(folders, "write_text", write)
    done = call("sweep", grid, "-o", tmp_path / "out")
    keeps, message = done.stderr.splitlines()
    assert done.returncode != 0 and "the same command goes on from there" in keeps
    assert message.startswith("tilepress: error: ") and message.endswith(".json: No space left on device")


def test_an_interrupt_says_that_the_same_command_goes_on(grid, tmp_path, call, monkeypatch):
    run = InProcess.run

    def stop(self, batches):
        yield from run(self, batches[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr("tilepress.cluster.executor.InProcess.run", stop)
    done = call("sweep", grid, "-o", tmp_path / "out")
    assert done.returncode == 130 and "the same command goes on from there" in done.stderr
