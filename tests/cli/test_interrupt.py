"""`tilepress compress` in a process of its own, interrupted and killed, and run again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.models import tiny

from tilepress.models import compress_folder
from tilepress.models.disk_storage import DiskStorage

BLOCKS = 12
# Both are 130 to a shell. Python ends by the signal where the interrupt came while a C extension ran Python's own code.
INTERRUPTED = (130, -signal.SIGINT)
RECIPE = """
[weights]
quantize = "gptq"
density = 0.5
prune = "wanda"
[calibration]
text = "TEXT"
sequences = 8
length = 48
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(model folder, recipe file, the folder that an uninterrupted run gives)."""
    folder, text = tiny.save(tmp_path_factory.mktemp("interrupt") / "model", num_hidden_layers=BLOCKS)
    recipe = folder.parent / "recipe.toml"
    recipe.write_text(RECIPE.replace("TEXT", str(text)))
    compress_folder(str(folder), folder.parent / "whole", recipe)
    return folder, recipe, folder.parent / "whole"


def start(folder, out, recipe):
    command = [sys.executable, "-m", "tilepress", "compress", str(folder), "-o", str(out), "--recipe", str(recipe)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(out):
    marks = out.with_name(out.name + ".partial") / "finished"
    return sum(name.endswith(".json") for name in os.listdir(marks)) if marks.exists() else 0


def stop(process, out, count, how):
    """Send the signal `how` somewhere in the block after `count` finished ones; the exit code and standard error."""
    while finished(out) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    time.sleep(random.random() * 0.1)
    process.send_signal(how)
    _, error = process.communicate()
    return process.returncode, error


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def count_stages(monkeypatch):
    done, finish = [], DiskStorage.finish
    monkeypatch.setattr(DiskStorage, "finish", lambda *arguments: done.append(arguments[1]) or finish(*arguments))
    return done


def test_interrupted_then_killed_then_finished(job, tmp_path, monkeypatch):
    folder, recipe, whole = job
    out = tmp_path / "out"
    code, error = stop(start(folder, out, recipe), out, 2, signal.SIGINT)
    assert code in INTERRUPTED and "Traceback" not in error
    assert error.splitlines()[-2:] == [
        f"Finished blocks are kept in {out}.partial; the same command goes on from there.",
        "tilepress: interrupted",
    ]
    count = finished(out)
    assert 2 <= count < BLOCKS and not out.exists()
    code, _ = stop(start(folder, out, recipe), out, count + 1, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert count < finished(out) <= BLOCKS and not out.exists()
    count, done = finished(out), count_stages(monkeypatch)
    compress_folder(str(folder), out, recipe)
    assert len(done) == BLOCKS + 1 - count and contents(out) == contents(whole)


def test_interrupted_while_it_starts(job, tmp_path):
    process = start(job[0], tmp_path / "out", job[1])
    while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.002)  # until it imports what the command needs
    time.sleep(random.random() * 0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode in INTERRUPTED and not (tmp_path / "out").exists()
    assert error.endswith("tilepress: interrupted\n") and "Traceback" not in error
