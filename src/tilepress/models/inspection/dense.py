"""A model that is not compressed: its tensors, and what `compress` would do with each, judged by name and shape.

The recipe's defaults are meant. `compress` itself looks at the model's modules; what only they tell, a module that
computes something else than a linear layer, is not seen here.
"""

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from ..names import READ_BY_CODE
from .weights import read_json, read_weights

Fate = Literal["packed", "packed as embedding", "kept: output layer", "kept"]
EMBEDDING = re.compile(r"(.*\.)?(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|token_embd)")
OUTPUT = re.compile(r"(.*\.)?(lm_head|embed_out|output)")
KEPT = re.compile(r"(.*\.)?(wpe|embed_positions|position_embeddings|token_type_embeddings|gate|router|ffn_gate_inp)")
EXPERTS = re.compile(r".*(experts\.(gate_up_proj|down_proj)|ffn_(gate|up|down)_exps\.weight)")
BITS: dict[Fate, float] = {"packed": 4.5, "packed as embedding": 8.0}  # a weight, in int4:g32 and int8:row


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file; `type` as the file calls it."""

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def numbers(self) -> int:
        return prod(self.shape)

    @property
    def fate(self) -> Fate:
        layer, _, last = self.name.rpartition(".")
        if EXPERTS.fullmatch(self.name):
            return "packed"
        if len(self.shape) != 2 or last != "weight":
            return "kept"
        if EMBEDDING.fullmatch(layer):
            return "packed as embedding"
        if OUTPUT.fullmatch(layer):
            return "kept: output layer"
        return "kept" if KEPT.fullmatch(layer) or layer.endswith(READ_BY_CODE) else "packed"

    @property
    def bytes_after(self) -> float:
        return BITS[self.fate] * self.numbers / 8 if self.fate in BITS else self.nbytes


@dataclass(frozen=True)
class DenseModel:
    """`facts`: what else the files say, in words. `quantised_by`: another tool, whose codes `compress` would take."""

    tensors: list[Tensor]
    facts: dict[str, str]
    quantised_by: str | None = None

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def bytes_after(self) -> float:
        """About what the default recipe leaves."""
        return sum(tensor.bytes_after for tensor in self.tensors)


def read_dense(folder: Path) -> DenseModel:
    """A folder of transformers; DamagedError where its files cannot be understood."""
    config, weights = read_json(folder / "config.json", folder), read_weights(folder)
    tensors = [Tensor(name, one.stored.type, one.stored.shape, one.stored.nbytes) for name, one in weights.items()]
    keys = ("model_type", "num_hidden_layers", "hidden_size", "vocab_size", "dtype")
    facts = {key.replace("_", " "): str(config[key]) for key in keys if key in config}
    section = config.get("quantization_config")
    method = section.get("quant_method") if isinstance(section, dict) else None
    return DenseModel(tensors, facts, None if method is None else str(method))
