"""Counters as perf prints them; none of these machines need have any."""

from dataclasses import replace

import pytest
from tests.bench.test_linear import QUICK

from tilepress.bench import counters
from tilepress.bench.counters import Waiting, counters_refusal, read_counts, shares, waiting
from tilepress.bench.linear import parse_contestant
from tilepress.bench.shapes import Shape

PRINTED = """
1000000,,slots:u,500000,100.00,,
200000,,topdown-retiring:u,500000,100.00,20.0,retiring
900000,,topdown-mem-bound:u,500000,100.00,90.0,Memory Bound
250000,,cycles:u,500000,100.00,,
100000.0,,dram_stalls:u,500000,100.00,,
<not counted>,,instructions:u,0,100.00,,
"""


def test_shares_of_what_perf_counts():
    counts = read_counts(PRINTED)
    assert set(counts) == {"slots", "topdown-retiring", "topdown-mem-bound", "cycles", "dram_stalls"}
    assert shares(counts) == Waiting(memory=0.9, dram=0.4)


@pytest.fixture
def perf(monkeypatch, tmp_path):
    """A `perf` that prints what its file says, when it is told to stop or what it ran has ended."""
    (tmp_path / "topdown-mem-bound").touch()
    printed = tmp_path / "printed"
    printed.write_text(PRINTED)
    script = tmp_path / "perf"
    script.write_text(f"""#!/bin/sh
trap 'cat {printed} >&2; exit 0' INT
case "$*" in *-p*) while true; do sleep 0.01; done;; *) cat {printed} >&2;; esac
""")
    script.chmod(0o755)
    monkeypatch.setattr(counters, "EVENTS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return printed


def test_a_machine_with_counters(perf):
    assert counters_refusal() is None
    contestants = [parse_contestant("bf16"), parse_contestant("bf16@50%")]
    assert waiting(Shape(32, 64), contestants, replace(QUICK, peers=False), 0.01) == [Waiting(0.9, 0.4)] * 2


def test_counters_that_may_not_be_read(perf):
    perf.write_text("Error:\nNo permission to enable slots event.\n\n")
    assert counters_refusal() == "perf may not count here: No permission to enable slots event."
    with pytest.raises(RuntimeError, match="perf counted nothing: No permission"):
        counters._counted(lambda: None, 0.01)


def test_counters_that_do_not_end(perf, monkeypatch, tmp_path):
    (tmp_path / "perf").write_text("#!/bin/sh\ntrap '' INT\nexec sleep 60\n")
    monkeypatch.setattr(counters, "PATIENCE", 0.1)
    with pytest.raises(RuntimeError, match="perf does not end when it is told to"):
        counters._counted(lambda: None, 0.01)


def test_machines_without(perf, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nowhere")
    assert counters_refusal() == "perf is not installed"
    monkeypatch.setattr(counters, "EVENTS", tmp_path / "none")
    assert "shows no counter" in counters_refusal()
