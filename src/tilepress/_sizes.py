"""Sizes of memory, as users write them."""

import re

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B)?\s*", re.ASCII)


def size_in_bytes(size: int | str) -> int:
    """Of a number, or of a text like "4 GiB"; ValueError if it is none."""
    if isinstance(size, int):
        return size
    match = _SIZE.fullmatch(size)
    if not match:
        raise ValueError(f"a size of memory is like 4 GiB or 500 MB, not {size!r}")
    return int(float(match[1]) * _UNITS[match[2] or ""])
