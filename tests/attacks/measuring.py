"""What a loader may take of a file that means it harm."""

import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

MB = 1_000_000
SLACK = 64 * MB
HANG = 60  # s; a loader that takes longer does not come to an end
ROOM = 2 << 30  # bytes of address space: a bomb ends in a MemoryError, not in the machine's


@contextmanager
def bounded(size):
    """Fails where what is done inside takes more memory than twice `size` bytes + 64 MB, or never ends."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    alarm = signal.signal(signal.SIGALRM, _hang)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = _status("VmHWM")
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + ROOM, limits[1]))
    signal.alarm(HANG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    taken = _status("VmHWM") - before
    assert taken <= 2 * size + SLACK, f"{taken / MB:.0f} MB were taken for {size / MB:.1f} MB"


def _hang(*_):
    pytest.fail(f"it does not come to an end in {HANG} s")


def _status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
