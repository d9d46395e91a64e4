"""Whether our threads and torch's get in each other's way: a loop that alternates both against each alone."""

import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.functional import linear

from .. import kernels
from ..tiles import pack

Figure = tuple[str, float, str]
SIZE = 4096  # neurons and inputs: a layer of each takes well under a millisecond, so that waking threads counts
CALLS = 50


def measure_alternating(rounds: int, threads: int | None) -> list[Figure]:
    """Seconds of a torch layer alone, of ours alone, and of both in turn, medians of `rounds`; and how many times as
    long both in turn take as the sum of both alone."""
    weight, x = torch.randn(SIZE, SIZE) / SIZE**0.5, torch.randn(1, SIZE)
    packed = pack(weight, "int4:g32")

    def theirs() -> None:
        linear(x, weight)

    def ours() -> None:
        kernels.linear(x, packed, activations="int8", threads=threads)

    def both() -> None:
        theirs()
        ours()

    loops = {"torch": theirs, "ours": ours, "alternating": both}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, call in loops.items():
            times[name].append(_seconds_per_call(call))
    medians = {name: statistics.median(found) for name, found in times.items()}
    slowdown = medians["alternating"] / (medians["torch"] + medians["ours"])
    return [*((name, seconds, "s") for name, seconds in medians.items()), ("over_sum", slowdown, "x")]


def _seconds_per_call(call: Callable[[], None]) -> float:
    call()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS
