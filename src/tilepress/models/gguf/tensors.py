"""The weights of a GGUF file, decoded one by one when they are asked for: no float32 copy of the file is made.

The file is read, not mapped: one that becomes shorter meanwhile gives an error, not a dead process.
"""

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._bounded import open_ordinary
from ..config_limits import described
from ..embedded import ModelUnavailableError
from ..shards import Shards, Stored
from .check import AGAIN, Needed, check_tensors, needed_tensors
from .limits import Header, Stated, read_header

LINK = "model.gguf"  # in a folder of ours: a link to the GGUF file, or the file that parts were joined to


def open_weights(folder: Path) -> Shards:
    """The weights of a folder as plain tensors: of a GGUF file where ours leads to one, else of its safetensors
    files."""
    return GgufShards(folder) if is_described(folder) else Shards(folder)


def is_described(folder: Path) -> bool:
    """Whether the folder has a config and a tokenizer, made of a GGUF file, beside that file itself."""
    return (folder / LINK).exists() and not any(folder.glob("*.safetensors*"))


def require_packages() -> None:
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise ModelUnavailableError(
                f"reading GGUF files needs the package {package}: pip install 'tilepress[gguf]'"
            )


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in the file. `shape`: of its weights. `row`: bytes of its last dimension. `type`: gguf's."""

    shape: tuple[int, ...]
    row: int
    type: Any
    start: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape[:-1]) * self.row

    def at(self, index: int) -> "Place":
        """What is at `index` of the first dimension, which stays, with length 1."""
        size = self.nbytes // self.shape[0]
        return Place((1, *self.shape[1:]), self.row, self.type, self.start + index * size)


@dataclass(frozen=True)
class Lazy:
    """A tensor that transformers asks for by slicing, as it does those of safetensors files."""

    shards: "GgufShards"
    name: str

    def __getitem__(self, _: Any) -> Tensor:
        return self.shards[self.name]


class GgufShards(Shards):
    """Name in the model of transformers → float32 tensor. `kind`: the model's class. `nbytes`: of all tensors, as a
    folder in float32 has."""

    def __init__(self, folder: Path) -> None:
        require_packages()
        self.file = (folder / LINK).resolve()  # which the user knows
        self.paths = [self.file]
        header = read_header(self.file)
        self._tensors = _places(self.file, header)
        model = _model(folder, len(header.tensors))
        self.kind, self._needed = type(model), _needed(self.file, header, model)
        self._sources: dict[str, list[str]] = {}
        for tensor in header.tensors:
            if tensor in self._needed.sources:
                self._sources.setdefault(self._needed.sources[tensor], []).append(tensor)
        self.shapes = {name: self._shape(name) for name in self._sources}
        self._check_shapes(model.state_dict())
        self.stored = {name: Stored(shape, "F32") for name, shape in self.shapes.items()}
        self._places = dict.fromkeys(self.shapes, self.file)

    def __getitem__(self, name: str) -> Tensor:
        return self._converted(name, {tensor: self._tensors[tensor] for tensor in self._sources[name]})

    def part(self, name: str, index: int | None) -> Tensor:
        """The tensor, or only what is at `index` of its first dimension: of experts nothing else is decoded."""
        if index is None or len(self.shapes[name]) != 3:
            return self[name] if index is None else self[name][index].clone()
        return self._converted(name, {tensor: self._tensors[tensor].at(index) for tensor in self._sources[name]})[0]

    def lazily(self) -> dict[str, Lazy]:
        """All tensors, each read when it is asked for."""
        return {name: Lazy(self, name) for name in self}

    def nbytes(self) -> int:
        return sum(map(prod, self.shapes.values())) * torch.float32.itemsize

    def fingerprint(self) -> list[str]:
        """What changes when the file does: its name, size, time and table of contents; not every byte."""
        facts = self.file.stat()
        contents = hashlib.sha256(repr(sorted(self._tensors.items())).encode()).hexdigest()
        return [f"{self.file.name} {facts.st_size} {facts.st_mtime_ns} {contents}"]

    def _check_shapes(self, described: Mapping[str, Tensor]) -> None:
        for name, shape in self.shapes.items():
            if shape != tuple(described[name].shape):
                raise ModelUnavailableError(
                    f"{name} is {list(shape)} in {self.file} and {list(described[name].shape)} by its metadata: {AGAIN}"
                )

    def _converted(self, name: str, places: dict[str, Place]) -> Tensor:
        """What transformers makes of the tensors `places`, of which the parameter `name` consists."""
        return self._processed(name, {tensor: self._decoded(tensor, place) for tensor, place in places.items()})

    def _processed(self, name: str, tensors: dict[str, NDArray[np.float32]]) -> Tensor:
        """transformers turns names and rows back to what they were before llama.cpp's converter. What it makes of one
        tensor it returns; what it joins, or names itself, it leaves among `made`."""
        made: dict[str, Tensor] = {}
        for tensor, weights in tensors.items():
            result = self._needed.processor.process(
                weights=weights,
                name=tensor,
                tensor_key_mapping=self._needed.mapping,
                parsed_parameters={"tensors": made},
            )
            if result.name is not None:
                made[name] = torch.from_numpy(np.ascontiguousarray(result.weights))
        if name not in made:
            raise ModelUnavailableError(f"transformers makes no {name} of {', '.join(tensors)} in {self.file}: {AGAIN}")
        return made[name]

    def _decoded(self, tensor: str, place: Place) -> NDArray[np.float32]:
        from gguf import dequantize

        with open_ordinary(self.file) as file:
            file.seek(place.start)
            data = np.fromfile(file, np.uint8, place.nbytes)
        if data.size != place.nbytes:
            raise ModelUnavailableError(f"{self.file} ends within {tensor}: {AGAIN}")
        try:
            weights: NDArray[np.float32] = dequantize(data.reshape(*place.shape[:-1], place.row), place.type)
        except NotImplementedError as error:
            raise ModelUnavailableError(f"{tensor} of {self.file} cannot be decoded: {error}") from error
        return weights

    def _shape(self, name: str) -> tuple[int, ...]:
        """Of the parameter, without its numbers: gates and ups of experts lie one above the other in it."""
        shapes = {tensor: self._tensors[tensor].shape for tensor in self._sources[name]}
        first, *others = shapes.values()
        if len(first) == 3:
            return (first[0], first[1] + sum(shape[1] for shape in others), first[2])
        numbers = {tensor: np.broadcast_to(np.float32(-1), shape) for tensor, shape in shapes.items()}
        return tuple(self._processed(name, numbers).shape)


def _model(folder: Path, tensors: int) -> Any:
    """The one that the folder's config.json describes, without its numbers."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return described(folder, config, tensors, trust_remote_code=False)


def _needed(file: Path, header: Header, model: Any) -> Needed:
    """How the tensors become those of the model."""
    try:
        needed = needed_tensors(model.config, model, header.architecture)
    except Exception as error:  # of a config of another kind, anywhere in transformers or gguf
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelUnavailableError(f"{file} does not fit the config.json that leads to it: {reason}") from error
    if needed is None:
        raise ModelUnavailableError(f"{file} is of the kind {header.architecture}, which is not read as it is")
    check_tensors(str(file), header.tensors, needed)
    return needed


def _places(file: Path, header: Header) -> dict[str, Place]:
    size = file.stat().st_size
    try:
        places = {name: _place(name, stated, header.start) for name, stated in header.tensors.items()}
    except (ValueError, KeyError) as error:
        raise ModelUnavailableError(f"{file} cannot be read: {error}") from error
    for name, place in places.items():
        if place.start + place.nbytes > size:
            raise ModelUnavailableError(f"{file} ends before its tensor {name} does: {AGAIN}")
    return places


def _place(name: str, stated: Stated, start: int) -> Place:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    type = GGMLQuantizationType(stated.type)  # ValueError of one that there is not
    weights, nbytes = GGML_QUANT_SIZES[type]
    if not all(stated.shape) or stated.shape[-1] % weights:
        raise ValueError(f"{name} is {list(stated.shape)}, which has no whole blocks of {weights}")
    return Place(stated.shape, stated.shape[-1] // weights * nbytes, type, start + stated.offset)
