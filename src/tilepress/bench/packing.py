"""How long packing takes, and how much memory."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..formats import parse_weight
from ..tiles import pack, unpack

Figure = tuple[str, float, str]  # metric, value, unit


def measure_packing(
    format: str, neurons: int, inputs: int, density: float, repeats: int, threads: int | None
) -> list[Figure]:
    """Seconds to pack and to unpack (medians), packed size, and peak growth of memory while packing."""
    parse_weight(format)
    weight, sparse = normal_matrix(neurons, inputs, density), density < 1
    packed = pack(weight, format, sparse=sparse, threads=threads)
    packing = _median_seconds(lambda: pack(weight, format, sparse=sparse, threads=threads), repeats)
    unpacking = _median_seconds(lambda: unpack(packed, threads=threads), repeats)
    return [
        ("pack_time", packing, "s"),
        ("unpack_time", unpacking, "s"),
        ("size", packed.nbytes / 1e6, "MB"),
        ("peak_memory_over_size", peak_growth(format, neurons, inputs, density, threads) / packed.nbytes, "x"),
    ]


def peak_growth(format: str, neurons: int, inputs: int, density: float, threads: int | None) -> int:
    """Bytes that a process' memory rises by at most, over the input, while it packs its first matrix.

    In a process of its own, since allocators keep what was freed and give it out again unseen.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(_peak_growth_here, format, neurons, inputs, density, threads).result()


def normal_matrix(neurons: int, inputs: int, density: float) -> Tensor:
    """bfloat16 normal weights, some zero. By numpy, so that torch's allocator has nothing left over from making it."""
    chance = np.random.default_rng(0)
    weight = chance.standard_normal((neurons, inputs), np.float32)
    weight[chance.random((neurons, inputs), np.float32) >= density] = 0
    halves = (weight.view(np.uint32) >> 16).astype(np.uint16)
    return torch.from_numpy(halves).view(torch.bfloat16)


def _peak_growth_here(format: str, neurons: int, inputs: int, density: float, threads: int | None) -> int:
    weight = normal_matrix(neurons, inputs, density)
    pack(weight[:16], format, sparse=density < 1, threads=threads)  # threads, tables and the like are made once
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to now
    before = _status_bytes("VmRSS")
    pack(weight, format, sparse=density < 1, threads=threads)
    return _status_bytes("VmHWM") - before


def _median_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not report {field}")
