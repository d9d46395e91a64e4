"""Arithmetic on packed tiles: which kernels there are, and which one runs."""

from .dispatch import active_isa, chosen, cpu_features, registered, supported_isas
from .linear import error_bound, linear, linear_kernel
from .ops import register

__all__ = [
    "active_isa",
    "chosen",
    "cpu_features",
    "error_bound",
    "linear",
    "linear_kernel",
    "register",
    "registered",
    "supported_isas",
]
