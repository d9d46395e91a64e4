"""How long packing takes, and how much memory."""

import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..formats import parse_weight
from ..tiles import pack, unpack

Figure = tuple[str, float, str]


def measure_packing(
    format: str, neurons: int, inputs: int, density: float, repeats: int, threads: int | None
) -> list[Figure]:
    """Seconds to pack and to unpack (medians), packed size, and peak growth of memory while packing."""
    parse_weight(format)
    weight, sparse = _matrix(neurons, inputs, density), density < 1
    packed = pack(weight, format, sparse=sparse, threads=threads)
    packing = _median_seconds(lambda: pack(weight, format, sparse=sparse, threads=threads), repeats)
    growth = _peak_growth(lambda: pack(weight, format, sparse=sparse, threads=threads))
    unpacking = _median_seconds(lambda: unpack(packed, threads=threads), repeats)
    return [
        ("pack", packing, "s"),
        ("unpack", unpacking, "s"),
        ("size", packed.nbytes / 1e6, "MB"),
        ("peak over size", growth / packed.nbytes, "x"),
    ]


def _matrix(neurons: int, inputs: int, density: float) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(neurons, inputs, generator=generator)
    return weight.masked_fill_(torch.rand(neurons, inputs, generator=generator) >= density, 0).to(torch.bfloat16)


def _median_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _peak_growth(work: Callable[[], object]) -> int:
    """Bytes that the resident memory rose by, at its highest during `work`, over what it was before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to now
    before = _status_bytes("VmRSS")
    work()
    return _status_bytes("VmHWM") - before


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not report {field}")
