"""A folder that `tilepress compress` wrote: its layers, what it was made from and how, and whether it is whole."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._safetensors import DamagedError, Stored, read_array
from ..checksums import SUMS, check_sums
from .weights import Placed, read_json, read_weights, weight_files

LONGEST = 64_000  # bytes of a layer's description, as nn.packed has it


@dataclass(frozen=True)
class PackedLayer:
    """A packed matrix. `tied`: the output layer that computes with it too. `nbytes`: of its arrays."""

    name: str
    format: str
    density: float
    shape: tuple[int, int]
    nbytes: int
    activations: str
    tied: str | None = None

    @property
    def weights(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.weights


@dataclass(frozen=True)
class CompressedFolder:
    """`stated`: what config.json says of the compression. `kept`: the arrays that are not packed."""

    path: Path
    config: dict[str, Any]
    layers: list[PackedLayer]
    kept: dict[str, Stored]
    files: list[Path]

    @property
    def stated(self) -> dict[str, Any]:
        stated: dict[str, Any] = self.config["quantization_config"]
        return stated

    @property
    def nbytes(self) -> int:
        """Of the files of weights."""
        return sum(path.stat().st_size for path in self.files)

    @property
    def bits_per_weight(self) -> float:
        """Of the packed layers."""
        return 8 * sum(layer.nbytes for layer in self.layers) / sum(layer.weights for layer in self.layers)

    def damage(self) -> str | None:
        """What SHA256SUMS says is wrong, after every listed byte is read; None where all is as it was written."""
        try:
            return None if check_sums(self.path) else f"{self.path} has no {SUMS}, so damage would not be seen"
        except DamagedError as error:
            return str(error)


def is_compressed_config(config: dict[str, Any]) -> bool:
    section = config.get("quantization_config")
    return isinstance(section, dict) and section.get("quant_method") == "tilepress"


def read_compressed(folder: Path) -> CompressedFolder:
    """From headers alone; DamagedError where they contradict each other."""
    config, arrays = read_json(folder / "config.json", folder), read_weights(folder)
    try:
        listed = config["quantization_config"]["layers"]
        layers = [_layer(name, entry, arrays) for name, entry in listed.items()]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(f"{folder}/config.json and its weights disagree ({error!r}): compress it again") from error
    if not layers:
        raise DamagedError(f"{folder}/config.json lists no packed layer: compress it again")
    packed = {f"{layer.name}.{stream}" for layer in layers for stream in ("weight", *listed[layer.name]["streams"])}
    kept = {name: placed.stored for name, placed in arrays.items() if name not in packed}
    return CompressedFolder(folder, config, layers, kept, weight_files(folder))


def _layer(name: str, entry: dict[str, Any], arrays: dict[str, Placed]) -> PackedLayer:
    parts = [arrays[f"{name}.{stream}"] for stream in ("weight", *entry["streams"])]
    described = json.loads(read_array(parts[0].path, parts[0].stored, LONGEST))
    rows, cols = described["shape"]
    if type(rows) is not int or type(cols) is not int or rows < 1 or cols < 1:
        raise ValueError(f"{name} is {rows}×{cols}")
    size, tied = sum(part.stored.nbytes for part in parts[1:]), entry.get("tied")
    texts = str(entry["activations"]), None if tied is None else str(tied)
    return PackedLayer(name, str(described["format"]), float(described["density"]), (rows, cols), size, *texts)
