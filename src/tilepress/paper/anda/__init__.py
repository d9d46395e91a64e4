"""Anda: variable-length grouped activations and the search that chooses their lengths (HPCA 2025)."""

from .experiments import ITEMS

__all__ = ["ITEMS"]
