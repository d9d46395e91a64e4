"""A folder that another tool quantised, as if it held float32 weights: each is decoded when it is asked for."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..._bounded import MB, UnreadableError, read_bounded_text
from ..embedded import ModelUnavailableError
from ..gguf.tensors import open_weights
from ..shards import Shards
from .awq import read_awq
from .bitsandbytes import read_bitsandbytes
from .compressed_tensors import read_compressed_tensors
from .fp8 import read_fp8
from .gptq import read_gptq
from .layer import Checkpoint, Files, QuantizedLayer, SourceWeight
from .mxfp4 import read_mxfp4

Result = TypeVar("Result")
Reader = Callable[[Mapping[str, Any], Files], Checkpoint]
READERS: dict[str, Reader] = {
    "gptq": read_gptq,
    "awq": read_awq,
    "compressed-tensors": read_compressed_tensors,
    "fp8": read_fp8,
    "mxfp4": read_mxfp4,
    "bitsandbytes": read_bitsandbytes,
}
METHODS = frozenset(READERS)
# Old checkpoints say it in a file beside config.json.
BESIDE = {"quantize_config.json": "gptq", "quant_config.json": "awq"}


def open_checkpoint(folder: Path) -> Shards:
    """The folder's weights; `QuantizedShards` where another tool has quantised them by a scheme of READERS."""
    method, config = stated_method(folder)
    return QuantizedShards(folder, method, config) if method in METHODS else open_weights(folder)


def is_readable(folder: Path) -> bool:
    """Whether another tool has quantised the folder, by a scheme that is read here."""
    return stated_method(folder)[0] in METHODS


def stated_method(folder: Path) -> tuple[str | None, Mapping[str, Any]]:
    """The scheme that the folder names, and its settings; None where it names none."""
    config = _json(folder / "config.json")
    parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    for part in parts:
        stated = part.get("quantization_config")
        if isinstance(stated, Mapping) and stated:
            return str(stated.get("quant_method")), stated
    for name, method in BESIDE.items():
        if (folder / name).is_file():
            return method, _json(folder / name)
    return None, {}


class QuantizedShards(Shards):
    """Name → tensor, float32 for the weights of quantised layers, whose parts have no names here."""

    def __init__(self, folder: Path, method: str, config: Mapping[str, Any]) -> None:
        super().__init__(folder)
        self.method = method
        self._where = f"{folder} is quantised by {method}, and"
        found = self._find(config)
        self._layers = {f"{name}.weight": layer for name, layer in found.layers.items()}
        self._experts, self.dropped = found.experts, found.dropped
        self._refuse_what_is_there_twice()
        hidden = {name for layer in self._all() for name in layer.parts.values()} | self.dropped.keys()
        plain = {name: shape for name, shape in self.shapes.items() if name not in hidden}
        shapes = {name: one.shape for name, one in (self._layers | dict(self._experts)).items()}
        self.shapes = plain | shapes

    def __getitem__(self, name: str) -> Tensor:
        if name in self._experts:
            return torch.stack([self.part(name, index) for index in range(self._experts[name].count)])
        weight = self.source_weight(name)
        return super().__getitem__(name) if weight is None else weight.dense()

    def part(self, name: str, index: int | None) -> Tensor:
        if index is None:
            return self[name]
        weight = self.source_weight(name, index) if name in self._experts else None
        return super().part(name, index) if weight is None else weight.dense().T.contiguous()

    def source_weight(self, name: str, expert: int | None = None) -> SourceWeight | None:
        """The weight of that name with its codes and scales, [neurons, inputs], of one expert where the tensor has
        many; None of a tensor that is not quantised."""
        layer = self._layers.get(name) if expert is None else self._expert(name)
        if layer is None:
            return None
        parts = {part: self._as_stored(file, expert) for part, file in layer.parts.items()}
        return self._guarded(partial(layer.read, parts))

    @property
    def quantised(self) -> frozenset[str]:
        """The names of the weights that are."""
        return frozenset(self._layers.keys() | self._experts.keys())

    def _as_stored(self, name: str, index: int | None) -> Tensor:
        return super().__getitem__(name) if index is None else super().part(name, index)

    def _expert(self, name: str) -> QuantizedLayer | None:
        return self._experts[name].layer if name in self._experts else None

    def _all(self) -> list[QuantizedLayer]:
        return [*self._layers.values(), *(experts.layer for experts in self._experts.values())]

    def _find(self, config: Mapping[str, Any]) -> Checkpoint:
        files = Files(self.stored, super().__getitem__)
        found = self._guarded(lambda: READERS[self.method](config, files))
        if not found.layers and not found.experts:
            raise ModelUnavailableError(f"{self._where} holds no tensor that this scheme has: fetch the model again")
        return found

    def _refuse_what_is_there_twice(self) -> None:
        parts = {file for layer in self._all() for file in layer.parts.values()}
        for name in self.quantised:
            if name in self.stored and name not in parts:
                raise ModelUnavailableError(f"{self._where} has {name} twice, as it was and quantised: save it again")

    def _guarded(self, read: Callable[[], Result]) -> Result:
        try:
            return read()
        except ModelUnavailableError as error:
            raise ModelUnavailableError(f"{self._where} cannot be read: {error}") from error


def _json(path: Path) -> Mapping[str, Any]:
    """The file's JSON object, empty where it has none: what it lacks is said by those who need it."""
    try:
        value = json.loads(read_bounded_text(path, 64 * MB))
    except (OSError, UnreadableError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}
