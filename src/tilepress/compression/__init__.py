"""Dense tensors to codes, scales and masks; knows no byte layout."""

from .clipping import rtn
from .learned import learned_clip
from .plan import WeightPlan
from .prune import magnitude_mask, wanda_mask
from .statistics import InputStatistics
from .weight import CompressedWeight, compress_weight, decompress_weight, output_error

__all__ = [
    "CompressedWeight", "InputStatistics", "WeightPlan", "compress_weight", "decompress_weight", "learned_clip",
    "magnitude_mask", "output_error", "rtn", "wanda_mask",
]  # fmt: skip
