"""Torch modules that own packed tiles."""

from .decoding import decode_by_modules, decode_natively
from .embedding import PackedEmbedding, TiedLinear
from .emulation import emulated, with_activations
from .experts import PackedExperts
from .linear import PackedLinear

__all__ = [
    "PackedEmbedding",
    "PackedExperts",
    "PackedLinear",
    "TiedLinear",
    "decode_by_modules",
    "decode_natively",
    "emulated",
    "with_activations",
]
