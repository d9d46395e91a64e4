"""One changed constant in a process of its own, and whether the tests notice.

Processes are forks of one that has imported all that is slow to import, but nothing of the simulators: each imports
those anew, with one file changed. Files on disk stay as they are.
"""

import importlib.machinery
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.constants import Constant

SIMULATORS = ("hardware", "roofsurface", "simulate", "paper")


def preload() -> None:
    """What every test needs, without the packages that are changed."""
    import hypothesis
    import numba
    import pytest
    import torch

    import tests.conftest
    import tilepress.formats
    import tilepress.kernels
    import tilepress.tiles

    hypothesis.settings.register_profile("mutation", max_examples=20, derandomize=True, database=None)
    assert pytest and numba and torch and tests.conftest and tilepress.kernels
    loaded = [name for name in sys.modules if name.startswith(tuple(f"tilepress.{one}" for one in SIMULATORS))]
    assert not loaded, f"imported before they are changed: {loaded}"


def start(constant: Constant | None, tests: Sequence[Sequence[str]], compiled: bool) -> int:
    """Fork a process that runs `tests`, one sequence after the other, until one fails, with the constant changed; its
    number."""
    child = os.fork()
    if not child:
        os.setpgrp()
        code = 1
        try:
            code = _run(constant, tests, compiled)
        finally:
            os._exit(code)
    return child


def _run(constant: Constant | None, tests: Sequence[Sequence[str]], compiled: bool) -> int:
    import numba.core.config
    import pytest

    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    if constant is not None:
        _replace(constant.path, constant.mutated())
    with tempfile.TemporaryDirectory() as folder:
        if compiled and constant is not None:  # numba would take what it compiled before, and keep what it compiles now
            numba.core.config.CACHE_DIR = folder
        return int(any(pytest.main([*_QUIET, *some]) for some in tests))


_QUIET = (
    "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutation",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # plugins were loaded before
)  # fmt: skip


def _replace(path: Path, text: str) -> None:
    """Whoever imports or reads the file gets `text`."""
    import tilepress._bounded as bounded

    get_code, read = importlib.machinery.SourceFileLoader.get_code, bounded.read_bounded_text

    def code(loader, name):
        if Path(loader.path) == path:
            return compile(text, str(path), "exec", dont_inherit=True)
        return get_code(loader, name)

    importlib.machinery.SourceFileLoader.get_code = code
    bounded.read_bounded_text = lambda where, *rest: text if Path(where) == path else read(where, *rest)


def stop(child: int) -> None:
    os.killpg(child, signal.SIGKILL)
