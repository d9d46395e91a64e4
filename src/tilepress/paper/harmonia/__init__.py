"""Harmonia: block floating point in every layer, and a KV cache of 4-bit mantissas."""

from .experiments import ITEMS

__all__ = ["ITEMS"]
