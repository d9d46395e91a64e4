"""Timers, peers, and what the machine itself can do."""

from .bandwidth import last_level_cache_bytes, read_bandwidth

__all__ = ["last_level_cache_bytes", "read_bandwidth"]
