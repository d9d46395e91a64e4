"""A type checker accepts the Python of README.md and docs/, as a reader's own program: one module per page."""

import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, ROOT, Page

pytest.importorskip("mypy")

# Readers need not annotate their functions. What transformers returns is unknown: its types change by version.
SETTINGS = """
[mypy]
strict = true
allow_untyped_defs = true
allow_incomplete_defs = true
allow_untyped_calls = true
warn_return_any = false
follow_imports = silent

[mypy-transformers.*]
follow_imports = skip
"""
# One mistake a line.
WRONG = """import torch, tilepress
from tilepress import kernels, tiles
tilepress.compress(torch.nn.Linear(1, 1), 4)
tilepress.load_kv_cache(torch.nn.Linear(1, 1))
kernels.linear(torch.ones(1, 32), torch.ones(32, 32))
tiles.pack(torch.ones(32, 32), "int4:g32", densitty=0.5)
tiles.unpak(1)
"""


def module_of(page):
    """What the page's examples are together, each on the line that it has there."""
    lines = []
    for block in page.blocks:
        if block.language == "python" and not block.file:
            lines += [""] * (block.line - 1 - len(lines)) + list(block.lines)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """Module → its lines with errors, and what they are; all modules in one run."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "mypy.ini").write_text(SETTINGS)
    modules = {path.stem.replace("-", "_"): module_of(Page(path)) for path in PAGES}
    for name, text in {**modules, "wrong": WRONG}.items():
        (folder / f"{name}.py").write_text(text)
    options = ["--config-file", "mypy.ini", "--cache-dir", "cache", "--no-error-summary", "."]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mypy", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert not done.stderr and done.returncode == 1, done.stderr
    return re.findall(r"^(\w+)\.py:(\d+): error: (.*)$", done.stdout, re.M)


@pytest.mark.slow
def test_the_examples_of_every_page_fit_the_types(errors):
    assert [error for error in errors if error[0] != "wrong"] == []


@pytest.mark.slow
def test_mistakes_are_seen(errors):
    lines = [int(line) for module, line, _ in errors if module == "wrong"]
    assert sorted(set(lines)) == list(range(3, 1 + len(WRONG.splitlines())))


def test_there_are_examples():
    assert sum(bool(module_of(Page(path))) for path in PAGES) >= 6
