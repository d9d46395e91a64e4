"""A folder that another tool quantised, as if it held float32 weights: each is decoded when it is asked for."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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
        self._layers, self.dropped = self._find(config)
        hidden = {name for layer in self._layers.values() for name in layer.parts.values()} | self.dropped.keys()
        plain = {name: shape for name, shape in self.shapes.items() if name not in hidden}
        self.shapes = plain | {name: layer.shape for name, layer in self._layers.items()}

    def __getitem__(self, name: str) -> Tensor:
        weight = self.source_weight(name)
        return super().__getitem__(name) if weight is None else weight.dense()

    def part(self, name: str, index: int | None) -> Tensor:
        whole = self[name]
        return whole if index is None else whole[index].clone()

    def source_weight(self, name: str) -> SourceWeight | None:
        """The weight of that name with its codes and scales; None of a tensor that is not quantised."""
        if name not in self._layers:
            return None
        layer = self._layers[name]
        with_parts = {part: super(QuantizedShards, self).__getitem__(file) for part, file in layer.parts.items()}
        return self._guarded(partial(layer.read, with_parts))

    @property
    def quantised(self) -> frozenset[str]:
        """The names of the weights that are."""
        return frozenset(self._layers)

    def _find(self, config: Mapping[str, Any]) -> tuple[dict[str, QuantizedLayer], Mapping[str, str]]:
        files = Files(self.stored, super().__getitem__)
        found = self._guarded(lambda: READERS[self.method](config, files))
        layers = {f"{name}.weight": layer for name, layer in found.layers.items()}
        for name, layer in layers.items():
            if name in self.stored and name not in layer.parts.values():
                raise ModelUnavailableError(f"{self._where} has {name} twice, as it was and quantised: save it again")
        if not layers:
            raise ModelUnavailableError(f"{self._where} holds no tensor that this scheme has: fetch the model again")
        return layers, found.dropped

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
