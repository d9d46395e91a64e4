"""Layer tables: the shapes of a decoder's matrices, of models by name or of any Hugging Face configuration."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from .._bounded import UnreadableError, json_limit, read_bounded_text
from ..formats import TensorType
from ..hardware.machine import TILE_WEIGHTS

GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "smollm3", "phi3", "olmo", "granite", "stablelm")


class Projection(NamedTuple):
    """A linear layer, and the tensor type of its inputs."""

    name: str
    type: TensorType
    neurons: int
    inputs: int


@dataclass(frozen=True)
class Transformer:
    """`feed_forward`: width of its network, which has a gate beside its up projection if it is `gated`. `positions`:
    tokens that it takes at most."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    gated: bool
    source: str
    head_size: int = 0

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "kv_heads", "feed_forward", "vocabulary", "positions"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} is at least 1, not {getattr(self, field)}")
        if self.head_size < 0:
            raise ValueError(f"{self.name}: head_size is at least 1, not {self.head_size}")
        if self.heads % self.kv_heads or (not self.head_size and self.hidden % self.heads):
            raise ValueError(
                f"{self.name}: {self.heads} heads do not share {self.kv_heads} of keys, or do not divide {self.hidden}"
            )
        object.__setattr__(self, "head_size", self.head_size or self.hidden // self.heads)

    @property
    def width(self) -> int:
        """Of all query heads together."""
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @cached_property
    def projections(self) -> tuple[Projection, ...]:
        """Of one layer."""
        gate = (Projection("gate", "u", self.feed_forward, self.hidden),) if self.gated else ()
        return (
            Projection("q", "qkv", self.width, self.hidden),
            Projection("k", "qkv", self.kv_width, self.hidden),
            Projection("v", "qkv", self.kv_width, self.hidden),
            Projection("o", "o", self.hidden, self.width),
            *gate,
            Projection("up", "u", self.feed_forward, self.hidden),
            Projection("down", "d", self.hidden, self.feed_forward),
        )

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """(neurons, inputs) of the linear layers of one layer."""
        return tuple((one.neurons, one.inputs) for one in self.projections)

    @property
    def head(self) -> tuple[int, int]:
        """Of the last matrix, over the vocabulary."""
        return self.vocabulary, self.hidden

    @property
    def weights(self) -> int:
        return self.layers * sum(rows * cols for rows, cols in self.matrices) + self.vocabulary * self.hidden

    @property
    def tiles(self) -> float:
        """Of 16 neurons × 32 inputs."""
        return self.weights / TILE_WEIGHTS

    @property
    def products(self) -> tuple[int, int, int, int]:
        """Products that one token takes in one layer, by the tensor type of the inputs."""
        counts = {"qkv": 0, "o": 0, "u": 0, "d": 0}
        for one in self.projections:
            counts[one.type] += one.neurons * one.inputs
        qkv, o, u, d = counts.values()
        return qkv, o, u, d


def _opt(size: str, layers: int, hidden: int, heads: int) -> Transformer:
    source = f"config.json of facebook/opt-{size.lower()}"
    return Transformer(f"OPT-{size}", layers, hidden, heads, heads, 4 * hidden, 50272, 2048, False, source)


def _llama(name: str, shape: tuple[int, int, int, int, int], vocabulary: int, positions: int, hub: str) -> Transformer:
    """`shape`: layers, hidden, heads, heads of keys, feed-forward."""
    return Transformer(name, *shape, vocabulary, positions, True, f"config.json of {hub}")


_ALL = (
    _opt("125M", 12, 768, 12),
    _opt("1.3B", 24, 2048, 32),
    _opt("2.7B", 32, 2560, 32),
    _opt("6.7B", 32, 4096, 32),
    _opt("13B", 40, 5120, 40),
    _opt("30B", 48, 7168, 56),
    _opt("66B", 64, 9216, 72),
    _llama("LLaMA-7B", (32, 4096, 32, 32, 11008), 32000, 2048, "huggyllama/llama-7b"),
    _llama("LLaMA-13B", (40, 5120, 40, 40, 13824), 32000, 2048, "huggyllama/llama-13b"),
    _llama("LLaMA-30B", (60, 6656, 52, 52, 17920), 32000, 2048, "huggyllama/llama-30b"),
    _llama("LLaMA-65B", (80, 8192, 64, 64, 22016), 32000, 2048, "huggyllama/llama-65b"),
    _llama("Llama2-7B", (32, 4096, 32, 32, 11008), 32000, 4096, "meta-llama/Llama-2-7b-hf"),
    _llama("Llama2-13B", (40, 5120, 40, 40, 13824), 32000, 4096, "meta-llama/Llama-2-13b-hf"),
    _llama("Llama2-70B", (80, 8192, 64, 8, 28672), 32000, 4096, "meta-llama/Llama-2-70b-hf"),
    _llama("Llama3.1-8B", (32, 4096, 32, 8, 14336), 128256, 131072, "meta-llama/Llama-3.1-8B"),
    _llama("Llama3.1-70B", (80, 8192, 64, 8, 28672), 128256, 131072, "meta-llama/Llama-3.1-70B"),
    _llama("Llama3.2-1B", (16, 2048, 32, 8, 8192), 128256, 131072, "meta-llama/Llama-3.2-1B"),
    _llama("Llama3.2-3B", (28, 3072, 24, 8, 8192), 128256, 131072, "meta-llama/Llama-3.2-3B"),
    _llama("Mistral-7B", (32, 4096, 32, 8, 14336), 32768, 32768, "mistralai/Mistral-7B-v0.3"),
    _llama("SmolLM2-135M", (30, 576, 9, 3, 1536), 49152, 8192, "HuggingFaceTB/SmolLM2-135M"),
)
TRANSFORMERS = {model.name.lower(): model for model in _ALL}


def find_transformer(name: str) -> Transformer:
    """A model of the table by its name, or of a Hugging Face folder or config.json."""
    plain = _plain(name)
    for known, model in TRANSFORMERS.items():
        if plain == _plain(known):
            return model
    path = Path(name)
    if path.is_dir() or path.suffix == ".json":
        return _read(path / "config.json" if path.is_dir() else path)
    near = difflib.get_close_matches(name.lower(), TRANSFORMERS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TRANSFORMERS)}"
    raise ValueError(f"no model {name!r}; {hint}; or give a Hugging Face folder or config.json")


def from_config(config: Mapping[str, Any], name: str, source: str) -> Transformer:
    """Of a Hugging Face configuration."""
    kind = config.get("model_type")
    if kind != "opt" and kind not in GATED:
        raise ValueError(f"{source}: no layer table for models of type {kind!r}; there are opt, {', '.join(GATED)}")
    gated = kind != "opt"
    heads = _number(config, "num_attention_heads", source)
    return Transformer(
        name,
        layers=_number(config, "num_hidden_layers", source),
        hidden=_number(config, "hidden_size", source),
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads", source, heads),
        feed_forward=_number(config, "intermediate_size" if gated else "ffn_dim", source),
        vocabulary=_number(config, "vocab_size", source),
        positions=_number(config, "max_position_embeddings", source),
        gated=gated,
        source=source,
        head_size=_number(config, "head_dim", source, 0),
    )


def _read(path: Path) -> Transformer:
    try:
        config = json.loads(read_bounded_text(path, json_limit(0)))
    except (OSError, UnreadableError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no configuration of a model")
    return from_config(config, path.parent.name or path.stem, str(path))


def _number(config: Mapping[str, Any], field: str, source: str, default: int | None = None) -> int:
    value = config.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{source}: {field} is {'missing' if value is None else f'no whole number: {value!r}'}")
    return value


def _plain(name: str) -> str:
    """Without what people write differently: llama-2-7b and Llama2-7B are one."""
    return name.lower().replace("-", "").replace("_", "")
