"""Activations of a packed model whose mantissas its recipe left open."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn

from ..compression.search import Step
from .precision import Evaluations, Judge, Precision, find_precision
from .recipe import Recipe
from .storage import Layer
from .tensor_types import classify, layer_activations, products


def choose_mantissas(
    model: nn.Module,
    recipe: Recipe,
    windows: Tensor,
    evaluations: Evaluations,
    track: Callable[[Step], None] = lambda _: None,
) -> tuple[Recipe, Precision]:
    """Find the mantissas that the recipe leaves open, on the packed model's weights in ordinary layers (see
    `study_model.load_study_model` for why): the recipe with them, and the search's result."""
    request = recipe.activations.search
    assert request is not None
    types = classify(model, recipe.activations.types)
    precision = find_precision(
        Judge(model, types, windows, request.group, evaluations), products(model, types), request, track=track
    )
    activations = recipe.activations.model_copy(update={"format": str(precision.format)})
    return recipe.model_copy(update={"activations": activations}), precision


def with_activations_of(model: nn.Module, layers: list[Layer], recipe: Recipe) -> list[Layer]:
    """`layers` with the activations that the recipe has for them."""
    activations = layer_activations(model, recipe.activations.format, recipe.activations.types)
    return [replace(layer, activations=activations.get(layer.name, "float")) for layer in layers]
