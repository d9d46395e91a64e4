"""Where a number's bits lie: packed tiles, and the file that holds them."""

from .matrix import DamagedError, PackedMatrix
from .packing import pack, pack_codes, unpack, unpack_codes

__all__ = ["DamagedError", "PackedMatrix", "pack", "pack_codes", "unpack", "unpack_codes"]
