"""How much of a model is packed, and what stays as it was."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from .blocks import linear_layers, packable_embedding, pattern
from .left_dense import Dense
from .recipe import Recipe

NOTICED = 0.01  # share of the parameters from which layers that cannot be packed are worth a warning
MOST_NAMES = 6


@dataclass(frozen=True)
class Share:
    """Parameters of a model. `kept`: those that stay as they were, one that has several names counted once, and of
    those the `embeddings`, which are in tables of embeddings. `unsupported`: those in layers that cannot be packed, by
    name with * for numbers."""

    packed: int
    kept: int
    embeddings: int
    unsupported: dict[str, int]

    @property
    def total(self) -> int:
        return self.packed + self.kept

    @property
    def counts(self) -> dict[str, int]:
        return {"packed": self.packed, "kept": self.kept, "embeddings": self.embeddings}

    @property
    def is_low(self) -> bool:
        """Whether more than very little cannot be packed."""
        return sum(self.unsupported.values()) > NOTICED * self.total

    def __str__(self) -> str:
        text = (
            f"{millions(self.packed)} of {millions(self.total)} parameters packed ({self.packed / self.total:.1%}); "
            f"{millions(self.kept)} stay as they were, {millions(self.embeddings)} of them embeddings"
        )
        return text + (f"; cannot be packed: {self._names}" if self.is_low else "")

    @property
    def _names(self) -> str:
        ordered = sorted(self.unsupported.items(), key=lambda item: -item[1])
        named = [f"{name} ({millions(count)})" for name, count in ordered[:MOST_NAMES]]
        return ", ".join(named) + (" …" if len(ordered) > MOST_NAMES else "")


def share_of(model: nn.Module, recipe: Recipe, dense: Sequence[Dense]) -> Share:
    """Of a model, in linear form, that is about to be packed; `dense` are layers that are not."""
    return share_of_layers(model, _packed(model, recipe, dense), dense)


def share_of_layers(model: nn.Module, names: Iterable[str], dense: Sequence[Dense]) -> Share:
    """The same, with the names of what is to be packed."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    weights = {f"{name}.weight" for name in names}
    packed = {id(parameters[name]): parameters[name].numel() for name in weights}
    kept = {id(tensor): tensor.numel() for name, tensor in parameters.items() if name not in weights}
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    embeddings = sum(count for tensor, count in kept.items() if tensor in tables)
    unsupported: dict[str, int] = {}
    for layer in dense:
        if layer.is_unsupported:
            unsupported[pattern(layer.name)] = unsupported.get(pattern(layer.name), 0) + layer.weights
    return Share(sum(packed.values()), sum(kept.values()), embeddings, unsupported)


def _packed(model: nn.Module, recipe: Recipe, dense: Sequence[Dense]) -> set[str]:
    """Names of the layers that are packed, and of the embedding."""
    names = linear_layers(model).keys() - {layer.name for layer in dense}
    table = None if recipe.plan_of_embedding is None else packable_embedding(model)
    return names if table is None else names | {table[0]}


def millions(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1_000_000 else f"{count:,}"
