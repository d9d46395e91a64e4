"""Where a number's bits lie: packed tiles, and the file that holds them."""

from .._safetensors import DamagedError
from .container import load, read_header, save
from .matrix import PackedMatrix
from .packing import pack, pack_codes, unpack, unpack_codes

__all__ = [
    "DamagedError",
    "PackedMatrix",
    "load",
    "pack",
    "pack_codes",
    "read_header",
    "save",
    "unpack",
    "unpack_codes",
]
