"""Arithmetic on packed tiles: which kernels there are, and which one runs."""

from .dispatch import active_isa, batch_invariant, chosen, cpu_features, forced_isa, registered, supported_isas
from .embedding import embedding
from .linear import error_bound, linear, linear_kernel
from .ops import register
from .planes import PackedPlanes, pack_planes, unpack_planes

__all__ = [
    "PackedPlanes",
    "active_isa",
    "batch_invariant",
    "chosen",
    "cpu_features",
    "embedding",
    "error_bound",
    "forced_isa",
    "linear",
    "linear_kernel",
    "pack_planes",
    "register",
    "registered",
    "supported_isas",
    "unpack_planes",
]
