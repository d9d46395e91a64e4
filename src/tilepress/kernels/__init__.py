"""Arithmetic on packed tiles: which kernels there are, and which one runs."""

from .dispatch import active_isa, chosen, cpu_features, registered, supported_isas
from .linear import linear_int8

__all__ = ["active_isa", "chosen", "cpu_features", "linear_int8", "registered", "supported_isas"]
