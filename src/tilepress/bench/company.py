"""What busy programs beside them cost whole models: rates of prompts and decoding, against those without."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .model import Entrant, Result, Settings, Speed, measure
from .race import Step

LONGEST = 3600  # s; a busy process ends after it, or when the one that started it is gone
BUSY = """
import os, time
end = time.monotonic() + {seconds}
while time.monotonic() < end and os.getppid() == {parent}:
    for _ in range(100_000):
        pass
"""


@dataclass(frozen=True)
class Accompanied:
    """One model's speed without other programs, and beside them."""

    idle: Speed
    beside: Speed

    @property
    def prefill_share(self) -> float:
        return self.beside.prefill.mean / self.idle.prefill.mean

    @property
    def decode_share(self) -> float:
        return self.beside.decode.mean / self.idle.decode.mean


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`count` processes that compute, ended in any case."""
    code, processes = BUSY.format(seconds=LONGEST, parent=os.getpid()), []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL))
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def measure_accompanied(
    entrants: Sequence[Entrant], company: int, settings: Settings, vocabulary: int, step: Step = lambda text: None
) -> tuple[list[Accompanied], Result]:
    """Each entrant alone on this machine and beside `company` busy processes; and the second result, for who was
    refused."""
    idle = measure(entrants, settings, vocabulary, step)
    with busy_processes(company) as processes:
        beside = measure(entrants, settings, vocabulary, step)
        if any(process.poll() is not None for process in processes):
            raise RuntimeError(f"a busy process ended before the measurement: it took more than {LONGEST} s")
    with_idle = {speed.name: speed for speed in idle.speeds}
    return [Accompanied(with_idle[speed.name], speed) for speed in beside.speeds], beside
