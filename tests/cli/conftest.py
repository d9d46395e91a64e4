"""The command line in this process: what a subprocess gives, without the seconds that its imports take."""

import sys
from functools import partial
from types import SimpleNamespace

import pytest
from tests.cluster.hosted_crew import HostedExecutor
from tests.figures import Figures

from tilepress import cluster
from tilepress.bench import placement as placing
from tilepress.bench import tuning as measuring
from tilepress.cli import main
from tilepress.kernels import tuning


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
def little_tuning(monkeypatch, tmp_path):
    """`tilepress doctor --tune` takes small matrices and few rows. What it finds is kept in `cache`, and is in force no
    longer than the test."""
    small = partial(measuring.TuningRun, size=64, batches=(1, 4), repeats=1, formats=("int4:g32",))
    monkeypatch.setattr(measuring, "TuningRun", small)
    few = partial(placing.PlacementRun, size=64, many_rows=32, turns=1, seconds=0.0)
    monkeypatch.setattr(placing, "PlacementRun", few)
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    tuning.load.cache_clear()
    yield
    tuning.reset()
    tuning.load.cache_clear()


@pytest.fixture
def workers_here(monkeypatch):
    """`--workers` are this process, which tests/cluster has real ones for; (workers, threads) that were asked for."""
    asked, real = [], cluster.local_executor

    def executor(workers, threads=None):
        asked.append((workers, threads))
        return real(1) if workers == 1 else HostedExecutor(workers, threads or 1)

    monkeypatch.setattr(cluster, "local_executor", executor)
    return asked


@pytest.fixture
def call_for_records(call):
    """The figures that a command prints with --json."""

    def records(*arguments):
        done = call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return Figures(done.stdout)

    return records
