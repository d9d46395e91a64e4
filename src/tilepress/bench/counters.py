"""How much of a processor's time waits for memory, from its own counters, where it has them and `perf` may read them.

Intel counts slots of its pipeline that wait for any memory (topdown-mem-bound, from Sapphire Rapids on) and cycles that
stall with a load that missed the last cache (memory_activity.stalls_l3_miss); VTune's "Memory Bound" and "DRAM Bound"
are made of the same.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .linear import Contestant, Settings, _enter
from .race import torch_threads
from .shapes import Shape

EVENTS = Path("/sys/bus/event_source/devices/cpu/events")
MEMORY_SLOTS, SLOTS = "topdown-mem-bound", "slots"
DRAM_STALLS, CYCLES = "cpu/event=0x47,umask=0x9,cmask=0x9,name=dram_stalls/", "cycles"
SETTLE = 0.3  # s that perf takes to attach to all threads
PATIENCE = 30.0  # s that it may take to end


@dataclass(frozen=True)
class Waiting:
    """Shares of 1: of slots that wait for memory, caches included, and of cycles that wait for what no cache has."""

    memory: float
    dram: float


def counters_refusal() -> str | None:
    """Why there is nothing to count with here, or None."""
    if not (EVENTS / MEMORY_SLOTS).exists():
        return "this machine shows no counter of slots that wait for memory (Intel's topdown-mem-bound)"
    if shutil.which("perf") is None:
        return "perf is not installed"
    done = _perf("true")
    return None if _is_whole(done.stderr) else f"perf may not count here: {_last_line(done.stderr)}"


def waiting(shape: Shape, contestants: Sequence[Contestant], settings: Settings, seconds: float) -> list[Waiting]:
    """Of a layer with each contestant's weights in turn, called for `seconds` with the first batch of `settings`."""
    import torch

    counts = []
    with torch_threads(settings.threads) as threads:
        entrants, _ = _enter(shape, contestants, settings, threads, lambda text: None)
        x = torch.randn(settings.batches[0], shape.inputs).to(settings.dtype)
        for entrant in entrants:
            counts.append(_counted(entrant.prepare(x), seconds))
    return counts


def read_counts(text: str) -> dict[str, float]:
    """Event → count, of what `perf stat -x,` prints; without those that it could not count."""
    rows = [line.split(",") for line in text.splitlines()]
    return {row[2].partition(":")[0]: float(row[0]) for row in rows if len(row) > 2 and _is_number(row[0])}


def shares(counts: dict[str, float]) -> Waiting:
    return Waiting(counts[MEMORY_SLOTS] / counts[SLOTS], counts["dram_stalls"] / counts[CYCLES])


def _counted(call: Callable[[], object], seconds: float) -> Waiting:
    call()
    perf = subprocess.Popen(_command("-p", str(os.getpid())), stderr=subprocess.PIPE, text=True)
    start = time.monotonic()
    while time.monotonic() < start + SETTLE + seconds:
        call()
    perf.send_signal(signal.SIGINT)
    try:
        _, text = perf.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        perf.kill()
        perf.communicate()
        raise RuntimeError("perf does not end when it is told to") from error
    if not _is_whole(text):
        raise RuntimeError(f"perf counted nothing: {_last_line(text)}")
    return shares(read_counts(text))


def _perf(*what: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(_command(*what), capture_output=True, text=True, check=False)


def _command(*what: str) -> list[str]:
    events = f"{{{SLOTS},topdown-retiring,{MEMORY_SLOTS}}},{CYCLES},{DRAM_STALLS}"
    return ["perf", "stat", "-x,", "-e", events, *what]


def _is_whole(text: str) -> bool:
    return {SLOTS, MEMORY_SLOTS, CYCLES, "dram_stalls"} <= set(read_counts(text))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
