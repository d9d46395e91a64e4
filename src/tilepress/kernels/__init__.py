"""Arithmetic on packed tiles: which kernels there are, and which one runs."""

from .dispatch import active_isa, chosen, cpu_features, registered, supported_isas
from .linear import linear

__all__ = ["active_isa", "chosen", "cpu_features", "linear", "registered", "supported_isas"]
