"""DECA, the near-core decompression engine, and what it is compared with, simulated to the cycle."""

from .parameters import CHOICES, FITTED
from .simulation import Result, simulate
from .systems import Accelerated, Baseline, Software, System
from .workload import Workload, packed_workload, random_workload

__all__ = [
    "CHOICES", "FITTED", "Accelerated", "Baseline", "Result", "Software", "System", "Workload", "packed_workload",
    "random_workload", "simulate",
]  # fmt: skip
