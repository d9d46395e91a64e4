"""What a page tells a reader to add, added: and the tests that it tells him to run, run."""

import os
import shutil
import subprocess
import sys
import tomllib

import pytest

from tests.docs.pages import PAGES, ROOT, Page
from tilepress import kernels
from tilepress.hardware import read_accelerator, read_machine
from tilepress.models import read_recipe

# Does to a module of tilepress, as soon as it is imported, what the page does to its source.
PLUGIN = """
from tilepress._after_import import after_import

def add(module):
    exec(compile({code!r}, module.__file__, "exec"), vars(module))

after_import({module!r}, add)
"""


@pytest.fixture
def with_the_format(tmp_path):
    """A copy of the tests with what add-a-format.md adds to them, and a plugin that adds the rest to the package."""
    page = Page(ROOT / "docs/add-a-format.md")
    source, tests = (block for block in page.blocks if block.file and block.file.endswith(".py"))
    assert (source.file, tests.file) == ("src/tilepress/formats/floats.py", "tests/formats/element_cases.py")
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    with open(tmp_path / tests.file, "a") as file:
        file.write(tests.text)
    (tmp_path / "adds_a_format.py").write_text(PLUGIN.format(code=source.text, module="tilepress.formats.floats"))
    return tmp_path


def test_a_new_format_passes_the_tests_that_its_page_names(with_the_format):
    commands = [
        one for one in Page(ROOT / "docs/add-a-format.md").commands if one.words[:3] == ("python", "-m", "pytest")
    ]
    files = [word for command in commands for word in command.words if word.startswith("tests/")]
    assert files and {command.words[-2:] for command in commands} == {("-k", "e3m4")}
    options = [
        "-p",
        "adds_a_format",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        ".",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join([str(with_the_format), *map(os.path.abspath, given)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *files, "-k", "e3m4", *options],
        cwd=with_the_format,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    passed = int(done.stdout.rpartition(" passed")[0].split()[-1])
    assert passed > 20 and "failed" not in done.stdout


def test_the_table_of_the_roof_surface_is_what_the_command_prints(call):
    page = Page(ROOT / "docs/read-a-roof-surface.md")
    printed = call(*page.commands[0].words[1:]).stdout.splitlines()
    shown = [line.strip("| ").split(" | ") for line in page.text.splitlines() if line.startswith("| `")]
    assert shown
    for name, bound, wish, *figures in shown:
        (line,) = (line for line in printed if line.split()[:1] == [name.strip("`")])
        assert f" {bound} " in line and wish in line
        assert [float(word) for word in line.split()[-5:]] == [float(figure) for figure in figures]


def test_every_machine_that_a_page_shows_is_whole(tmp_path):
    shown = {name: text for path in PAGES for name, text in Page(path).files.items() if name.endswith(".yaml")}
    shown.pop("published.yaml")  # a paper's
    assert len(shown) >= 2
    for name, text in shown.items():
        (tmp_path / name).write_text(text)
        read = read_accelerator if "like:" in text else read_machine
        assert read(tmp_path / name).sources


def test_every_recipe_that_a_page_shows_is_one():
    texts = [block.text for path in PAGES for block in Page(path).blocks if block.language == "toml"]
    shown = [table for table in map(tomllib.loads, texts) if "kind" not in table]  # the others are grids of sweeps
    assert shown
    for table in shown:
        read_recipe(table)


def test_the_kernels_page_names_its_files_in_order():
    page = Page(ROOT / "docs/add-a-kernel.md").text
    steps = [
        "kernels/reference.py",
        "include/tilepress/linear.h",
        "`native/<area>/<operation>/<isa>.cc`",
        "matrix_unit/tile_registers.h",
        "dispatch/features.cc",
        "`native/dispatch`",
        "`native/bindings`",
        "tests/kernels/test_naming.py",
        "tests/kernels/test_linear.py",
        "roofsurface/kernels.py",
    ]
    places = [page.index(step) for step in steps]
    assert places == sorted(places)


def test_the_kernels_page_shows_code_that_is_there():
    excerpts = [block for block in Page(ROOT / "docs/add-a-kernel.md").blocks if block.language == "cpp"]
    assert len(excerpts) >= 3
    for block in excerpts:
        code = "\n".join(block.lines[1:])
        assert block.file and code in (ROOT / block.file).read_text(), f"{block.file} has no longer what the page shows"


def test_the_reference_of_kernels_names_every_operation():
    page = Page(ROOT / "docs/kernels.md").text
    assert [operation for operation in kernels.registered() if f"`{operation}`" not in page] == []
