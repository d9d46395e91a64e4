"""What a folder's config says of its layers, by the names that vLLM has for them. Knows nothing of vllm itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..models.registration import TilepressConfig, cache_of

EMBEDDINGS = ("embed_tokens", "embed_in", "word_embeddings", "wte", "embeddings")
SHARDS = {None: 0, "q": 0, "k": 1, "v": 2}  # vLLM's names of parts; others are their numbers
INSTEAD = "serve it with `tilepress serve`"


class Stated:
    """`layers`: name → what the config says of a packed one; `dense`: names of those that are not packed."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        stated = TilepressConfig(**config)
        cache = cache_of(stated.recipe)
        if cache is not None:
            raise ValueError(
                f"the recipe stores keys and values as {cache[0]}, and vLLM stores them its own way: {INSTEAD}, or "
                "compress the model without kv_cache.format"
            )
        self.layers: Mapping[str, Mapping[str, Any]] = stated.layers
        self.dense = frozenset(stated.dense)

    def rename(self, names: Mapping[str, str]) -> None:
        """Take other names, where the model in vLLM has others than transformers'."""
        self.layers = {names.get(name, name): _renamed(layer, names) for name, layer in self.layers.items()}
        self.dense = frozenset(names.get(name, name) for name in self.dense)

    @property
    def names(self) -> list[str]:
        """All that `rename` may change."""
        return [*self.layers, *self.dense, *(layer["tied"] for layer in self.layers.values() if layer.get("tied"))]

    def packed_parts(self, name: str, fused: Mapping[str, Sequence[str]]) -> list[str]:
        """The packed layers that vLLM has as one of that `name`, in order; none where all of them are dense.

        fused: last part of vLLM's name → those of the layers that it joins.
        """
        before, dot, last = name.rpartition(".")
        parts = [f"{before}{dot}{part}" for part in fused.get(last, (last,))]
        packed = [part for part in parts if part in self.layers]
        odd = [part for part in parts if part not in self.layers and part not in self.dense]
        if odd:
            raise ValueError(f"vLLM has a layer {odd[0]}, and the folder has none of that name: {INSTEAD}")
        if packed and packed != parts:
            kept = next(part for part in parts if part not in packed)
            raise ValueError(f"vLLM computes {packed[0]} and {kept} at once, and only the first is packed: {INSTEAD}")
        return packed

    def embedding(self, name: str) -> str | None:
        """The packed table of tokens, which vLLM may call "" instead; None where the table is dense."""
        if name:
            return name if name in self.layers else None
        return next((layer for layer in self.layers if layer.rpartition(".")[2] in EMBEDDINGS), None)

    def tied(self, output: str) -> str | None:
        """The embedding whose matrix the output layer computes with, if it does."""
        return next((name for name, layer in self.layers.items() if layer.get("tied") == output), None)

    def refuse_inside(self, name: str, kind: str) -> None:
        """ValueError where packed layers are parts of a module, of class `kind`, that computes with them itself."""
        inside = next((layer for layer in self.layers if layer.startswith(f"{name}.")), None)
        if inside is not None:
            raise ValueError(f"vLLM's {kind} computes with {inside} itself and cannot when it is packed: {INSTEAD}")


def part_number(shard: str | int | None) -> int:
    """Which of the layers that are joined `shard` is, as vLLM calls it."""
    return SHARDS[shard] if shard is None or isinstance(shard, str) else shard


def _renamed(layer: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    tied = layer.get("tied")
    return layer if tied is None else {**layer, "tied": names.get(tied, tied)}
