"""Which weights to keep."""

import torch
from torch import Tensor


def magnitude_mask(weight: Tensor, density: float) -> Tensor:
    """Keep the largest magnitudes of each row: round(density × inputs) of them, of equal ones those first in the row.

    Returns bool [neurons, inputs].
    """
    if not 0.0 <= density <= 1.0:
        raise ValueError(f"a density lies between 0 and 1, not {density}")
    keep = round(density * weight.shape[1])
    order = weight.abs().argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(weight, dtype=torch.bool).scatter_(1, order[:, :keep], True)
