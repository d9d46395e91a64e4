"""The format that weights came in, where a recipe names none."""

from collections.abc import Callable

from torch import Tensor, nn

from ..compression.source_grid import find_grid
from ..formats import parse_weight
from .blocks import find_blocks, linear_layers
from .recipe import Recipe

FOUR_BITS = "uint4:g32"  # which holds GGUF's Q4_0 and Q4_1


def sample_layer(model: nn.Module) -> str | None:
    """Name of the first layer of the first block, or of the model where there are no blocks."""
    blocks = find_blocks(model)
    layers = linear_layers(next(iter(blocks.values())), next(iter(blocks))) if blocks else linear_layers(model)
    return next(iter(layers), None)


def with_source_format(recipe: Recipe, weight: Tensor | None, announce: Callable[[str], None]) -> Recipe:
    """The recipe with FOUR_BITS in the place of the default format, where `weight`, of the sample layer, lies on such a
    grid: the default would round it a second time. A recipe that names a format, or drops weights, stays as it is."""
    weights = recipe.weights
    is_open = "format" not in weights.model_fields_set and weights.density == 1
    if not is_open or weight is None or find_grid(weight, parse_weight(FOUR_BITS)) is None:
        return recipe
    announce(
        f"the weights came on a grid of 4 bits, which {FOUR_BITS} takes as it is; {weights.format} would round them a "
        f"second time (--weights {weights.format} does)"
    )
    return recipe.model_copy(update={"weights": weights.model_copy(update={"format": FOUR_BITS})})
