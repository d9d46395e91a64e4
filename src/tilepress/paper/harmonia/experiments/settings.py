"""What the studies of Harmonia's caches share: settings, figures of each, and notes.

They run on a model that is here; the paper's are too large and stand beside it as printed. Relative accuracy is the
full-precision model's perplexity over that of the setting, in per cent. All studies take `weights` (a format to
compress to first; "" leaves them as they come, and those of smollm2-135m come with four bits), `device` (cuda where
there is one) and how much text there shall be.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...item import Ours
from ...options import Subject

if TYPE_CHECKING:
    from ....evaluate import Divergence

ACTIVATIONS = "bfp:g32:m8"  # all but the cache's, as the paper settles on
QUANTIZED = Subject(weights="int4:g128")  # of tables I and II
WIDE = ":hi8:initial32:local64"
ACCURACY, PERPLEXITY, KL, TOP = "relative accuracy", "perplexity", "KL divergence", "same most likely token"

FIGURE = "The figure's values are not in its text, but for those that stand here."
TEXTS = "Scales are learned on the text's part for training, or its first half, and checked on another."


def cache(format: str, smoothing: str = "none", activations: str = "fp", smoothed: int | None = None) -> Any:
    from ....evaluate.kv_studies import Cache

    return Cache(format, smoothing, activations, smoothed)


def recipe_cache(activations: str) -> Any:
    """That of the recipe `harmonia`."""
    from ....models.recipe import read_recipe

    recipe = read_recipe("harmonia").kv_cache
    return cache(recipe.format, recipe.smoothing, activations)


def cache_named(text: str) -> Any:
    """A cache as options write it: bfp4/hybrid."""
    format, _, smoothing = text.partition("/")
    return cache(format, smoothing or "none")


def figures(row: str, divergence: "Divergence", column: str) -> Iterator[Ours]:
    """A setting's figures, each in a row of its own."""
    ratio, perplexity = divergence.ratio, divergence.model.perplexity
    values = (
        (ACCURACY, 100 / ratio.value, "%", f"± {100 * ratio.error / ratio.value**2:.2g}"),
        (PERPLEXITY, perplexity.value, "", f"± {perplexity.error:.2g}"),
        (KL, divergence.kl.value, "nat", f"± {divergence.kl.error:.2g}"),
        (TOP, 100 * divergence.same_top.value, "%", ""),
    )
    for name, value, unit, note in values:
        yield Ours(f"{row}, {name}", column, value, unit, note)
