"""DECA: a near-core decompression accelerator, and the Roof-Surface model (MICRO 2025)."""

from .figures import FIGURES
from .tables import TABLES

ITEMS = (*TABLES, *FIGURES)

__all__ = ["ITEMS"]
