"""Busy processes beside a model: that they run, and end whatever happens."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tilepress.bench import company

STARTS = """
import sys, time
from tilepress.bench.company import busy_processes
with busy_processes(2) as processes:
    print(*(process.pid for process in processes), flush=True)
    time.sleep(600)
"""


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone_soon(pids):
    """Whether they end within seconds; one whose parent died is taken over by another that may not reap it at once."""
    for _ in range(200):
        if not any(is_running(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def test_processes_run_until_the_end():
    with company.busy_processes(2) as processes:
        assert all(process.poll() is None for process in processes)
    assert all(process.returncode == -signal.SIGKILL for process in processes)


def test_processes_end_with_an_error():
    with pytest.raises(ValueError, match="of the model"), company.busy_processes(1) as processes:
        raise ValueError("of the model")
    assert processes[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_when_the_measurement_is_stopped(how):
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        pids = [int(pid) for pid in one.stdout.readline().split()]
        one.send_signal(how)
        one.wait(60)
    assert len(pids) == 2 and gone_soon(pids)


def test_processes_end_by_themselves(monkeypatch):
    monkeypatch.setattr(company, "LONGEST", 0.1)
    with company.busy_processes(1) as processes:
        assert processes[0].wait(60) == 0
