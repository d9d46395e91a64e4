"""Accelerators for block floating point and their rivals: arrays of units, simulated to the cycle."""

from .parameters import CHOICES, FITTED
from .simulation import Product, Result, simulate
from .workload import Gemm, Task

__all__ = ["CHOICES", "FITTED", "Gemm", "Product", "Result", "Task", "simulate"]
