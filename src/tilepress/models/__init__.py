"""A model by name in, a compressed model out.

Names are imported when they are first used: some modules here need no torch, and neither do the commands that need
only those.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from .compress import compress_model
    from .compress_to_folder import Outcome, compress_folder
    from .embedded import ModelUnavailableError, embedded_model_path
    from .loading import LoadedModel, load_model, model_folder
    from .recipe import Recipe, RecipeError, read_recipe
    from .storage import Layer, Progress

__all__ = [
    "Layer", "LoadedModel", "ModelUnavailableError", "Outcome", "Progress", "Recipe", "RecipeError", "compress_folder",
    "compress_model", "embedded_model_path", "load_model", "model_folder", "read_recipe",
]  # fmt: skip

_PLACES = {
    "compress": ("compress_model",),
    "compress_to_folder": ("Outcome", "compress_folder"),
    "embedded": ("ModelUnavailableError", "embedded_model_path"),
    "loading": ("LoadedModel", "load_model", "model_folder"),
    "recipe": ("Recipe", "RecipeError", "read_recipe"),
    "storage": ("Layer", "Progress"),
}  # module → its names


def __getattr__(name: str) -> _Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(_import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
