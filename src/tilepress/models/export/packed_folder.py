"""A compressed model's folder, read layer by layer."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...tiles import DamagedError, PackedMatrix
from ...tiles.container import check_version, read_entry, restore
from ..checksums import SUMS, check_sums
from ..shards import INDEX, Shards

WRITTEN = {"config.json", INDEX, SUMS, "search.json"}  # what an export writes anew, or has no use for


class PackedFolder:
    """`config`: the model's, without what Tilepress says in it, which is `stated`."""

    def __init__(self, folder: Path) -> None:
        check_sums(folder)
        self.folder = folder
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.stated: Mapping[str, Any] = self.config.pop("quantization_config")
        self.shards = Shards(folder)
        self.layers: Mapping[str, Any] = self.stated["layers"]

    def activations(self, layer: str) -> str:
        return str(self.layers[layer]["activations"])

    def matrix(self, layer: str) -> PackedMatrix:
        """The layer's packed weights; the files were checked."""
        try:
            description = json.loads(self.shards[f"{layer}.weight"].numpy().tobytes())
            check_version(layer, description)
            entry = read_entry(description)
            arrays = {part: self.shards[f"{layer}.{part}"] for part in entry.sha256}
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{layer} is damaged: {error}: compress the model again") from error
        return restore(layer, entry, arrays, is_checked=True)

    def files(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """Name of each file of weights, its packed layers and its other tensors."""
        packed = {f"{layer}.{part}" for layer in self.layers for part in ("weight", *self.layers[layer]["streams"])}
        for path in self.shards.paths:
            names = self.shards.names_in(path)
            layers = [name.removesuffix(".weight") for name in names if name.endswith(".weight") and name in packed]
            yield path.name, layers, [name for name in names if name not in packed]

    def tensor(self, name: str) -> Tensor:
        return self.shards[name]

    def companions(self) -> list[Path]:
        """The tokenizer's files and others that are neither weights nor config."""
        files = (path for path in sorted(self.folder.iterdir()) if path.is_file())
        return [path for path in files if path.suffix != ".safetensors" and path.name not in WRITTEN]
