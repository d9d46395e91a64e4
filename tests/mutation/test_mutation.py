"""The tool that changes constants: what it finds, what it writes, and that a test in a fork sees it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import Outcomes
from tests.mutation.constants import constants

ROOT = Path(__file__).parents[2]
PYTHON = """
DEPTH, NAMES = 3, ("a", True)
TABLE = {4: Fitted(0.5, "×", 12)}


class Engine:
    width: int = 32

    def cycles(self, lookups: int = 0, *, scale=2.5e9):
        return 7 * lookups
"""
YAML = "cores: 56\nmemory: {bandwidth: 850.0e+9}\nmodes:\n  - [1, 8]\nsources: {cores: 5}\n"


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, "utf-8")
        return constants(tmp_path / name)

    return write


def test_constants_of_python(written):
    found = written("a.py", PYTHON)
    assert [(one.name, one.text, one.changed) for one in found] == [
        ("(DEPTH, NAMES)", "3", "4"),
        ("TABLE[4]", "0.5", "0.55"),
        ("TABLE[4]", "12", "13"),
        ("Engine.width", "32", "35"),
        ("Engine.cycles()", "0", "1"),
        ("Engine.cycles()", "2.5e9", "2.750000e+09"),
    ]
    assert found[2].mutated() == PYTHON.replace("12", "13")
    assert str(found[0]) == "a.py:2:16 (DEPTH, NAMES) 3 -> 4"


def test_constants_of_yaml(written):
    found = written("a.yaml", YAML)
    assert [(one.name, one.text) for one in found] == [
        ("cores", "56"), ("memory.bandwidth", "850.0e+9"), ("modes", "1"), ("modes", "8"),
    ]  # fmt: skip
    assert found[1].mutated() == YAML.replace("850.0e+9", "9.350000e+11")


def test_a_fork_sees_the_change_and_nobody_else_does(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text("def test_it():\n    from tilepress.roofsurface import Deca\n    assert Deca().tables == 8\n")
    code = f"""
import os
from pathlib import Path
from tests.mutation.constants import constants
from tests.mutation.mutant import preload, start
preload()
path = Path({str(ROOT)!r}) / "src/tilepress/roofsurface/decompressors.py"
(tables,) = [one for one in constants(path) if one.name == "Deca.tables"]
print([os.waitpid(start(one, [[{str(test)!r}]], False), 0)[1] == 0 for one in (None, tables, None)])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True, False, True]", done.stderr


def test_outcomes_are_gone_on_from(written, tmp_path):
    first, second = written("a.py", "ONE, TWO = 1, 1\n")
    Outcomes(tmp_path / "outcomes").add(first, noticed=True)
    Outcomes(tmp_path / "outcomes").add(second, noticed=False)
    assert Outcomes(tmp_path / "outcomes").noticed == {str(first): True, str(second): False}
    assert Outcomes(None).noticed == {}
