"""SparAMX: unstructured-sparse weights and KV caches on CPUs with AMX."""

from .experiments import ITEMS

__all__ = ["ITEMS"]
