"""The command line in this process: what a subprocess gives, without the seconds that its imports take."""

import sys
from types import SimpleNamespace

import pytest
from tests.figures import Figures

from tilepress.cli import main


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs `tilepress` with arguments and environment as given: returncode, stdout and stderr, as of a subprocess."""

    def run(*arguments, **environment):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
            patch.setattr(sys, "argv", ["tilepress", *map(str, arguments)])
            for name, value in environment.items():
                patch.setenv(name, value)
            main()
            sys.exit(0)
        captured = capsys.readouterr()
        return SimpleNamespace(returncode=end.value.code or 0, stdout=captured.out, stderr=captured.err)

    return run


@pytest.fixture
def call_for_records(call):
    """The figures that a command prints with --json."""

    def records(*arguments):
        done = call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return Figures(done.stdout)

    return records
