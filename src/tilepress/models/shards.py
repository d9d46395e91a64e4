"""The weights of a Hugging Face folder, read tensor by tensor from its safetensors files."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from .._bounded import json_limit, read_bounded_text
from .._safetensors import INDEX, SINGLE, read_raw_header


class Stored(NamedTuple):
    """`type` as safetensors calls it: F32, BF16, I32 …"""

    shape: tuple[int, ...]
    type: str


class Shards:
    """Name → tensor, as stored. A file is open only while something is read: pages of a mapped one count as memory."""

    def __init__(self, folder: Path) -> None:
        self.paths = _paths(folder)
        contents = {path: _stored(path) for path in self.paths}
        self.stored = {name: one for stored in contents.values() for name, one in stored.items()}
        self.shapes = {name: one.shape for name, one in self.stored.items()}
        self._places = {name: path for path, stored in contents.items() for name in stored}

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __getitem__(self, name: str) -> Tensor:
        with safe_open(self._places[name], "pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor.clone()  # not the file's own pages, which change when somebody writes to it

    def names_in(self, path: Path) -> list[str]:
        """The tensors of one of the files, in the file's order."""
        return [name for name, place in self._places.items() if place == path]

    def part(self, name: str, index: int | None) -> Tensor:
        """The tensor, or only what is at `index` of its first dimension."""
        if index is None:
            return self[name]
        with safe_open(self._places[name], "pt") as file:
            part: Tensor = file.get_slice(name)[index]
            return part.clone()

    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    def fingerprint(self) -> list[str]:
        """What changes when the files do: their names, sizes, times and tables of contents; not every byte."""
        return [_fingerprint(path) for path in self.paths]


def _paths(folder: Path) -> list[Path]:
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if not (folder / INDEX).exists():
        _refuse_pickles(folder)
        raise ValueError(f"{folder} holds neither {SINGLE} nor {INDEX}: save the model there as safetensors first")
    try:
        files = sorted(set(json.loads(_index_text(folder))["weight_map"].values()))
        outside = [name for name in files if Path(name).name != name]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / INDEX} is no index of tensors: fetch or save the model again") from error
    if outside:
        raise ValueError(f"{folder / INDEX} names {outside[0]!r}, which is not a file in that folder: it is not read")
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} lacks {', '.join(missing)}, which {INDEX} names: fetch the model again")
    return [folder / name for name in files]


def _refuse_pickles(folder: Path) -> None:
    pickles = sorted(path.name for path in folder.glob("*.bin")) + sorted(path.name for path in folder.glob("*.pt*"))
    if pickles:
        raise ValueError(
            f"{folder} holds its weights as {pickles[0]}, a pickle, which may run code when it is read: save the model "
            "as safetensors first"
        )


def _index_text(folder: Path) -> str:
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return read_bounded_text(folder / INDEX, json_limit(weights))


def _stored(path: Path) -> dict[str, Stored]:
    read_raw_header(path)  # which bounds what the parser takes
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: Stored(tuple(one.get_shape()), one.get_dtype()) for name, one in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error


def _fingerprint(path: Path) -> str:
    facts = path.stat()
    contents = hashlib.sha256(read_raw_header(path)[8:]).hexdigest()
    return f"{path.name} {facts.st_size} {facts.st_mtime_ns} {contents}"
