"""The code of the notebooks runs, cell by cell, with small settings and the stand-ins that pages have; and what they
have printed was printed by the code that they have."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_commands import REFUSED

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
SMALLER = {
    "compress-and-judge": {"CALIBRATE": 2, "JUDGE": 1, "WINDOW": 32, "TOKENS": 2},
    "choose-a-format": {"SHAPE": "256x256", "REPEATS": 1, "SECONDS": 0},
    "explore-an-accelerator": {"WEIGHTS": 500_000, "PROMPT": 128, "MODEL": "llama3.2-1b"},
}
on_notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def settings_of(path):
    """Names that the first cell sets."""
    names = {}
    exec(source(code_cells(path)[0]), names)
    return names.keys() - {"__builtins__"}


@pytest.fixture
def in_process(call, capsys, monkeypatch):
    """Commands that a notebook starts run in this process, as they do for pages."""
    real = subprocess.run

    def run(command, **options):
        if command[:3] != [sys.executable, "-m", "tilepress"]:
            return real(command, **options)  # what tilepress starts itself
        assert options.pop("check")
        capsys.readouterr()  # what the notebook printed before is none of the command's
        done = call(*command[3:])
        if REFUSED in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        return subprocess.CompletedProcess(command, 0, done.stdout, done.stderr)

    monkeypatch.setattr(subprocess, "run", run)


@on_notebooks
def test_a_notebook_runs_from_top_to_bottom(path, beside, in_process, capsys):
    names = {"__name__": path.stem}
    for number, cell in enumerate(code_cells(path)):
        exec(compile(source(cell), f"{path.name}, cell {number}", "exec"), names)
        if number == 0:
            names |= SMALLER[path.stem]
    assert capsys.readouterr().out


@on_notebooks
def test_its_first_cell_has_the_settings_that_tests_make_smaller(path):
    assert code_cells(path)[0]["metadata"]["tags"] == ["settings"]
    assert SMALLER[path.stem].keys() <= settings_of(path)


@on_notebooks
def test_it_was_run_as_it_is(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run `make notebooks`"
    for cell in cells:
        assert bool(cell["outputs"]) == ("print(" in source(cell) and "def " not in source(cell)), source(cell)


@on_notebooks
def test_it_is_small_and_names_no_place(path):
    text = path.read_text("utf-8")
    assert len(text) < 100_000
    assert not re.search(r"/(home|tmp|root|Users)/|" + re.escape(str(Path.home())) + r"\b/", text)
