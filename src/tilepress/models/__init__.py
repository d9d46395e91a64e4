"""Models by name or path."""

from .embedded import embedded_model_path, linear_weights

__all__ = ["embedded_model_path", "linear_weights"]
