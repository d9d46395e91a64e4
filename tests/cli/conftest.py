"""The command line in this process: what a subprocess gives, without the seconds that its imports take."""

import json
import sys
from types import SimpleNamespace

import pytest

from tilepress.cli import main


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs `tilepress` with the arguments given; returncode, stdout and stderr, as of a subprocess."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tilepress", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
            sys.exit(0)
        found = capsys.readouterr()
        return SimpleNamespace(returncode=end.value.code or 0, stdout=found.out, stderr=found.err)

    return run


@pytest.fixture
def call_for_records(call):
    """Name → value of the records that a command prints with --json."""

    def records(*arguments):
        done = call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return {record["name"]: record["value"] for record in json.loads(done.stdout)}

    return records
