"""What stands before the arrays of a safetensors file, read without torch."""

import json
import os
import re
import struct
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ._bounded import MB, UnreadableError, json_limit, open_ordinary

METADATA = "__metadata__"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"  # as transformers names them

SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


class DamagedError(ValueError):
    """Packed arrays or a file that contradict themselves; nothing of them was used."""


class Stored(NamedTuple):
    """An array in a file. `type` as safetensors calls it: F32, BF16, I32 …; `begin` and `end` in bytes of the file."""

    type: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def numbers(self) -> int:
        return prod(self.shape)


def is_whole_model(name: str) -> bool:
    """Whether a file of that name is a model's weights, or one of several that are."""
    return name == SINGLE or SHARD.fullmatch(name) is not None


def read_arrays(path: str | Path) -> dict[str, Stored]:
    """Name → where the array is, in the file's order; DamagedError unless they fill the file without a gap."""
    raw = read_raw_header(path)
    try:
        header = json.loads(raw[8:])
        header.pop(METADATA, None)
        arrays = {name: _stored(entry, len(raw)) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path} is not a safetensors file: its header cannot be understood") from error
    arrays = dict(sorted(arrays.items(), key=lambda item: (item[1].begin, item[1].end)))
    ends = [len(raw), *(one.end for one in arrays.values())]
    if [one.begin for one in arrays.values()] != ends[:-1] or ends[-1] != Path(path).stat().st_size:
        raise DamagedError(f"{path} is not a whole safetensors file: its arrays do not fill it")
    return arrays


def read_array(path: str | Path, stored: Stored, most: int) -> bytes:
    """The bytes of an array of at most `most` bytes."""
    if stored.nbytes > most:
        raise DamagedError(f"{path} has {stored.nbytes} bytes where at most {most} are meant")
    with open_ordinary(path) as file:
        file.seek(stored.begin)
        return file.read(stored.nbytes)


def read_raw_header(path: str | Path) -> bytes:
    """Everything before the arrays of a safetensors file: eight bytes of length, then that much JSON. DamagedError if
    that is more than can be meant."""
    try:
        with open_ordinary(path) as file:
            length = _header_length(path, file)
            return file.read(8 + length)
    except UnreadableError as error:
        raise DamagedError(f"{path} is not a safetensors file: {error}") from error


def _header_length(path: str | Path, file: BinaryIO) -> int:
    size, start = os.fstat(file.fileno()).st_size, file.read(8)
    length: int = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    arrays = size - 8 - length
    if arrays < 0:
        raise DamagedError(f"{path} is not a safetensors file")
    if length > json_limit(arrays):
        raise DamagedError(
            f"{path} has a header of {length / MB:.1f} MB for {arrays / MB:.1f} MB of arrays, more than is read: fetch "
            "the file again, or save fewer arrays in it"
        )
    file.seek(0)
    return length


def _stored(entry: Any, start: int) -> Stored:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(one) is int and one >= 0 for one in (begin, end, *shape)):
        raise TypeError("sizes must be counts")
    return Stored(str(entry["dtype"]), shape, start + begin, start + end)
