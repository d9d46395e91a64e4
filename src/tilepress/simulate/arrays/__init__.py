"""Accelerators for block floating point and their rivals: arrays of units, simulated to the cycle."""

from .mapping import BEST, PINNED, Mapper
from .parameters import CHOICES, FITTED
from .simulation import Product, Result, simulate
from .workload import Gemm, Task

__all__ = ["BEST", "CHOICES", "FITTED", "PINNED", "Gemm", "Mapper", "Product", "Result", "Task", "simulate"]
