"""Dense tensors to codes, scales and masks; knows no byte layout."""

from .prune import magnitude_mask

__all__ = ["magnitude_mask"]
