"""How fast activations become bit planes, and floats again."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from ..formats import BFP
from ..kernels import chosen, pack_planes, unpack_planes
from ..tiles.packing import thread_count
from .bandwidth import read_bandwidth


@dataclass(frozen=True)
class Rates:
    """Bytes of float16 a second that each of `threads` threads packs and unpacks, medians; the read bandwidth of as
    many threads, as a share for each of them; bits stored a value; the instruction set that ran."""

    format: BFP
    pack: float
    unpack: float
    bandwidth: float
    bits: float
    isa: str

    @property
    def figures(self) -> list[tuple[str, float, str]]:
        """(metric, value, unit)."""
        return [
            ("pack_rate", self.pack / 1e9, "GB/s"),
            ("unpack_rate", self.unpack / 1e9, "GB/s"),
            ("pack_share_of_read_bandwidth", self.pack / self.bandwidth, ""),
            ("unpack_share_of_read_bandwidth", self.unpack / self.bandwidth, ""),
            ("bits_per_value", self.bits, "bit"),
        ]


def measure_planes(mantissa: int, size: int, repeats: int, threads: int | None) -> Rates:
    """Of `size` bytes of normal float16 values: more than the caches hold, or the figures are those of a cache."""
    format, threads = BFP(64, mantissa), thread_count(threads)
    values = torch.randn(max(1, size // 128), 64, generator=torch.Generator().manual_seed(0)).half()
    packed = pack_planes(values, format, threads=threads)
    seconds_packing = _median_seconds(lambda: pack_planes(values, format, threads=threads), repeats)
    seconds_unpacking = _median_seconds(lambda: unpack_planes(packed, threads=threads), repeats)
    rate = values.nbytes / threads
    return Rates(
        format,
        rate / seconds_packing,
        rate / seconds_unpacking,
        read_bandwidth(threads, repeats=repeats) / threads,
        8 * packed.nbytes / values.numel(),
        chosen("pack_planes_fp"),
    )


def _median_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return median(times)
