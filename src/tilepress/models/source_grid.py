"""Whether a model that another tool has quantised is packed as it is, or rounded anew."""

from collections.abc import Callable, Sequence

from .quantized import QuantizedShards
from .recipe import KEEP, Recipe
from .shards import Shards
from .storage import Layer

# Keys of [weights] that ask for other weights than the checkpoint has.
ANEW = ("format", "density", "prune", "prune_scope", "quantize", "reconstruct", "heal", "override")


def with_source_grid(recipe: Recipe, name: str, shards: Shards, announce: Callable[[str], None]) -> Recipe:
    """The recipe with weights.grid as it is to be; says what becomes of weights that came quantised."""
    weights = recipe.weights
    if not isinstance(shards, QuantizedShards):
        if weights.grid == "source":
            raise ValueError(
                f"{name} is not quantised by another tool, so it has no grid to take: leave out weights.grid"
            )
        return recipe
    if shards.dropped:
        tensor, why = next(iter(shards.dropped.items()))
        announce(f"{name}: {len(shards.dropped)} tensors are left out, {tensor} among them: {why}")
    reason = None if weights.grid == "source" and "grid" in weights.model_fields_set else _reason(recipe)
    if reason is not None:
        announce(
            f"{name} is quantised by {shards.method} already, and {reason}: its weights are rounded a second time, to "
            f"{weights.format}"
        )
        return recipe
    if "embedding" in weights.model_fields_set and weights.embedding != KEEP:
        raise ValueError(f"{name} is packed as it comes, and its embedding with it: leave out weights.embedding")
    head = "compress" if "lm_head.weight" in shards.quantised else "keep"
    return recipe.model_copy(
        update={"weights": weights.model_copy(update={"grid": "source", "embedding": KEEP, "lm_head": head})}
    )


def announce_grids(
    name: str, shards: Shards, recipe: Recipe, layers: Sequence[Layer], announce: Callable[[str], None]
) -> None:
    """Say how many layers have the codes and scales that they came with."""
    if recipe.weights.grid != "source" or not isinstance(shards, QuantizedShards):
        return
    again = [layer for layer in layers if layer.rounding]
    announce(f"{name}: {len(layers) - len(again)} of {len(layers)} layers have the codes and scales of {shards.method}")
    if again:
        announce(f"{len(again)} layers are rounded a second time, {again[0].name} first: {again[0].rounding}")


def _reason(recipe: Recipe) -> str | None:
    """Why weights cannot stay as they are."""
    if recipe.folds_scales:
        return f"{recipe.kv_cache.smoothing} smoothing changes weights"
    stated = [key for key in ANEW if key in recipe.weights.model_fields_set]
    return f"the recipe states weights.{stated[0]}" if stated else None
