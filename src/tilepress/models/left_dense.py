"""What a recipe leaves as it is, and why."""

from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from ..nn.packed import PackedModule
from ..nn.row_scale import is_lookup
from .blocks import input_embedding, is_read_by_code, is_tied, linear_layers, output_layer
from .linear_form import why_not_split
from .recipe import COMPRESS, KEEP, Recipe


@dataclass(frozen=True)
class Dense:
    """A layer that keeps its weights as they are, and why: because it `is_unsupported`, or as the recipe has it."""

    name: str
    type: str
    weights: int
    why: str
    is_unsupported: bool = True


def left_dense(model: nn.Module, recipe: Recipe) -> list[Dense]:
    """The layers that `recipe` leaves as they are; ValueError where it cannot be followed."""
    if any(isinstance(module, PackedModule) for module in model.modules()):
        raise ValueError("the model is compressed already: compress the one it was made from")
    output, ties = output_layer(model), recipe.ties(is_tied(model))
    by_itself = recipe.weights.lm_head != KEEP and not ties
    packed = linear_layers(model).keys() - ({output} if not by_itself else set())
    if not packed:
        raise ValueError(_nothing(model, output))
    follows = recipe.weights.lm_head == COMPRESS
    recipe.check_overrides(packed if follows else packed - {output}, None if follows else output)
    dense = dense_layers(model, packed | ({output} if ties else set()), output)
    return [*_odd_embedding(model, recipe), *dense]


def dense_layers(model: nn.Module, packed: Collection[str | None], output: str | None) -> list[Dense]:
    """The modules with matrices of their own, other than embeddings, that are not among the names `packed`."""
    dense = []
    for name, module in model.named_modules():
        if (weights := _weights(module)) and name not in packed and not isinstance(module, nn.Embedding):
            kind = type(module).__name__
            is_plain = name == output and type(module) is nn.Linear
            why = "weights.lm_head is keep" if is_plain else _why_not_packed(name, module)
            dense.append(Dense(name, kind, weights, why, not is_plain))
    return dense


def _why_not_packed(name: str, module: nn.Module) -> str:
    if is_read_by_code(name):
        return "the model's code reads its weights by itself"
    return why_not_split(module) or f"{type(module).__name__} is not a plain nn.Linear"


def _odd_embedding(model: nn.Module, recipe: Recipe) -> list[Dense]:
    """The embedding, where the recipe has a format for it and it does more than look rows up."""
    table = input_embedding(model)
    if table is None or recipe.plan_of_embedding is None or is_lookup(table[1]):
        return []
    kind = type(table[1]).__name__
    return [Dense(table[0], kind, _weights(table[1]), f"{kind} is no plain lookup of rows")]


def _weights(module: nn.Module) -> int:
    """Of its own matrices."""
    return sum(parameter.numel() for parameter in module.parameters(recurse=False) if parameter.ndim > 1)


def _nothing(model: nn.Module, output: str | None) -> str:
    but = f" but {output}, which lm_head keep leaves as it is" if output in linear_layers(model) else ""
    return f"{type(model).__name__} has no nn.Linear layer{but}, so there is nothing to compress"
