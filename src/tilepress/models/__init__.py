"""A model by name in, a compressed model out."""

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
