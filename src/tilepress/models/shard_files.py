"""Safetensors files joined into larger ones by copying their bytes: memory holds one piece of an array at a time."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from .._files import replacing
from .._safetensors import METADATA, SINGLE, Stored, read_arrays

SHARD_BYTES = 4_000_000_000  # of a file of weights, at most, unless one block has more
PIECE = 16_000_000  # bytes copied at once
ALIGNMENT = 8  # bytes; of the widest number in a file
WIDTHS = {  # type in safetensors → bytes of a number; one if it is not here
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "C64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "BF16": 2,
    "F16": 2,
    "I16": 2,
    "U16": 2,
}


def plan_shards(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Which files go together, by their index: neighbours, up to `most` bytes. A larger file stays alone."""
    shards: list[list[int]] = []
    held = 0
    for index, size in enumerate(sizes):
        if not shards or held + size > most:
            shards.append([])
            held = 0
        shards[-1].append(index)
        held += size
    return shards


def shard_names(count: int) -> list[str]:
    """As transformers names them."""
    if count == 1:
        return [SINGLE]
    return [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def join_files(sources: Sequence[Path], target: Path) -> None:
    """All arrays of `sources`, which have no name in common, in one file: the widest numbers first, so that each array
    lies where its type wants it, else in order."""
    arrays = [(name, source, one) for source in sources for name, one in read_arrays(source).items()]
    arrays.sort(key=lambda entry: -WIDTHS.get(entry[2].type, 1))
    with replacing(target) as made, open(made, "wb") as file:
        file.write(_header([(name, one) for name, _, one in arrays]))
        for source in _runs(arrays):
            with open(source[0], "rb") as read:
                for one in source[1]:
                    _copy(read, one, file)


def _header(arrays: Sequence[tuple[str, Stored]]) -> bytes:
    header: dict[str, object] = {METADATA: {"format": "pt"}}
    at = 0
    for name, one in arrays:
        header[name] = {"dtype": one.type, "shape": one.shape, "data_offsets": [at, at + one.nbytes]}
        at += one.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _runs(arrays: Sequence[tuple[str, Path, Stored]]) -> list[tuple[Path, list[Stored]]]:
    """Arrays that come from one file after another, with that file."""
    runs: list[tuple[Path, list[Stored]]] = []
    for _, source, one in arrays:
        if not runs or runs[-1][0] != source:
            runs.append((source, []))
        runs[-1][1].append(one)
    return runs


def _copy(source: BinaryIO, one: Stored, target: BinaryIO) -> None:
    source.seek(one.begin)
    left = one.nbytes
    while left:
        piece = source.read(min(left, PIECE))
        if not piece:
            raise OSError(f"{source.name} became shorter while it was copied")
        target.write(piece)
        left -= len(piece)
