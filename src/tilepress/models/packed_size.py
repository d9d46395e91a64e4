"""Bytes of a model's weights as compression will leave them, from shapes alone."""

import math
from collections.abc import Mapping

from torch import nn

from ..compression import WeightPlan
from ..tiles.size import packed_bytes
from .blocks import find_blocks, is_tied, linear_layers, output_layer, packable_embedding
from .recipe import KEEP, Recipe
from .sensitivity import Stored, Unit


def unit_bytes(unit: Unit, plan: WeightPlan) -> int:
    """Of the unit's layers, packed; see `packed_bytes` for how exact that is."""
    return len(unit.layers) * _bytes(unit.shape, plan)


def rest_bytes(model: nn.Module, recipe: Recipe, others: Mapping[str, Stored]) -> int:
    """Of `others`, all tensors that are no weights of layers in blocks: the embedding, the output layer, other layers
    outside the blocks, norms and biases."""
    packed = _packed_outside(model, recipe)
    kept = sum(math.prod(one.shape) * one.itemsize for key, one in others.items() if _layer(key) not in packed)
    return kept + sum(_bytes(_shape(model, name), plan) for name, plan in packed.items())


def _packed_outside(model: nn.Module, recipe: Recipe) -> dict[str, WeightPlan]:
    """Name → plan of what `compress.Compression` packs outside the blocks; a matrix that the embedding and the output
    layer share has the embedding's name."""
    inside = tuple(f"{stage}." for stage in find_blocks(model))
    output, table = output_layer(model), packable_embedding(model)
    packed = {name: recipe.plan(name) for name in linear_layers(model) if not name.startswith(inside)}
    if output is not None and packed.pop(output, None) is not None:
        by_itself = recipe.weights.lm_head != KEEP and not recipe.ties(is_tied(model))
        packed |= {output: recipe.plan_of_output(output)} if by_itself else {}
    plan = recipe.plan_of_embedding
    if table is not None and plan is not None:
        packed[table[0]] = plan
    return packed


def _bytes(shape: tuple[int, int], plan: WeightPlan) -> int:
    by_row = plan.prune == "wanda" or (plan.prune == "magnitude" and plan.prune_scope == "row")
    return packed_bytes(plan.format, *shape, plan.density, even=by_row)


def _shape(model: nn.Module, name: str) -> tuple[int, int]:
    rows, cols = model.get_submodule(name).get_parameter("weight").shape
    return rows, cols


def _layer(key: str) -> str:
    return key.removesuffix(".weight")
