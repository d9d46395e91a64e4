"""A compressed model's folder, read layer by layer."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._safetensors import INDEX
from ...tiles import DamagedError, PackedMatrix, unpack
from ...tiles.container import check_version, read_entry, restore
from ..blocks import input_embedding
from ..checksums import SUMS, check_sums
from ..kept_records import RECORDS
from ..shards import Shards

WRITTEN = {"config.json", INDEX, SUMS, RECORDS, "search.json"}  # what an export writes anew, or has no use for


class PackedFolder:
    """`config`: the model's, without what Tilepress says in it, which is `stated`. `layers`: the packed linear ones;
    `embedding`: the name of the packed table of tokens, if it is packed."""

    def __init__(self, folder: Path) -> None:
        check_sums(folder)
        self.folder = folder
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.stated: Mapping[str, Any] = self.config.pop("quantization_config")
        self.shards = Shards(folder)
        self.packed: Mapping[str, Any] = self.stated["layers"]
        table = _embedding_name(self.config)
        self.embedding = table if table in self.packed else None
        self.layers = {name: layer for name, layer in self.packed.items() if name != self.embedding}
        if self.embedding is not None and self.packed[self.embedding].get("tied"):
            self.config["tie_word_embeddings"] = True

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
        packed = {f"{layer}.{part}" for layer in self.packed for part in ("weight", *self.packed[layer]["streams"])}
        for path in self.shards.paths:
            names = self.shards.names_in(path)
            layers = [name.removesuffix(".weight") for name in names if name.removesuffix(".weight") in self.layers]
            table = f"{self.embedding}.weight"
            yield path.name, layers, [name for name in names if name not in packed or name == table]

    def tensor(self, name: str) -> Tensor:
        """A dense tensor; the table of tokens in float32, which holds what it stands for."""
        if self.embedding is not None and name == f"{self.embedding}.weight":
            return unpack(self.matrix(self.embedding))
        return self.shards[name]

    def notes(self) -> list[str]:
        """What every export has to say of the model."""
        sparse = sum(layer["density"] < 1 for layer in self.layers.values())
        said = [f"{sparse} sparse layers are written dense, their dropped weights as zeros"] if sparse else []
        if self.embedding is not None:
            said.append(f"{self.embedding} is written in float32: compress with --embedding keep to have it as it came")
        return said

    def companions(self) -> list[Path]:
        """The tokenizer's files and others that are neither weights nor config."""
        files = (path for path in sorted(self.folder.iterdir()) if path.is_file())
        return [path for path in files if path.suffix != ".safetensors" and path.name not in WRITTEN]


def _embedding_name(config: Mapping[str, Any]) -> str | None:
    """Of the table of token embeddings in the model that `config` describes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    options = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **options))
    table = input_embedding(model)
    return None if table is None else table[0]
