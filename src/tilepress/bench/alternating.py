"""Whether our threads and torch's get in each other's way: a loop that alternates both against each alone."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import linear

from .. import kernels
from ..tiles import pack

ALTERNATING = "alternating"
SIZE = 4096  # neurons and inputs: a layer of each takes well under a millisecond, so that waking threads counts
CALLS = 50


def measure_alternating(rounds: int, threads: int | None) -> dict[str, float]:
    """Seconds of a torch layer alone, of ours alone, and of both in turn, medians of `rounds`."""
    weight, x = torch.randn(SIZE, SIZE) / SIZE**0.5, torch.randn(1, SIZE)
    packed = pack(weight, "int4:g32")

    def theirs() -> None:
        linear(x, weight)

    def ours() -> None:
        kernels.linear(x, packed, activations="int8", threads=threads)

    def both() -> None:
        theirs()
        ours()

    loops = {"torch": theirs, "ours": ours, ALTERNATING: both}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, call in loops.items():
            times[name].append(_seconds_per_call(call))
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def slowdown(seconds: Mapping[str, float]) -> float:
    """How many times as long both in turn take as the sum of both alone."""
    return seconds[ALTERNATING] / (sum(seconds.values()) - seconds[ALTERNATING])


def _seconds_per_call(call: Callable[[], None]) -> float:
    call()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS
