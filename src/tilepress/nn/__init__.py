"""Torch modules that own packed tiles."""

from .linear import PackedLinear

__all__ = ["PackedLinear"]
