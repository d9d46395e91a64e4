"""Torch modules that own packed tiles."""

from .decoding import decode_by_modules, decode_natively
from .linear import PackedLinear

__all__ = ["PackedLinear", "decode_by_modules", "decode_natively"]
