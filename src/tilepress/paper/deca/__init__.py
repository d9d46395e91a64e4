"""DECA: a near-core decompression accelerator, and the Roof-Surface model (MICRO 2025)."""

from .experiments import ITEMS

__all__ = ["ITEMS"]
