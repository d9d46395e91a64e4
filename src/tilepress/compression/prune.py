"""Which weights to keep."""

from typing import Literal, get_args

import torch
from torch import Tensor

from .threads import PANEL, in_order

PruneScope = Literal["row", "layer"]
PRUNE_SCOPES: tuple[PruneScope, ...] = get_args(PruneScope)


def magnitude_mask(weight: Tensor, density: float, scope: PruneScope = "row") -> Tensor:
    """Keep the largest magnitudes of each row, or of the whole layer: round(density × weights) of them, of equal
    ones those first in the row or layer.

    Returns bool [neurons, inputs].
    """
    check_density(density)
    if scope not in PRUNE_SCOPES:
        raise ValueError(f"prune_scope is one of {', '.join(PRUNE_SCOPES)}, not {scope!r}")
    scores = weight.abs() if scope == "row" else weight.abs().reshape(1, -1)
    return keep_largest(scores, round(density * scores.shape[1])).view(weight.shape)


def wanda_mask(weight: Tensor, norms: Tensor, density: float) -> Tensor:
    """Keep in each row the round(density × inputs) weights with the largest |weight| × norm of their input.

    norms: [inputs]. Returns bool [neurons, inputs]. Sun et al. 2023, "A Simple and Effective Pruning Approach for
    Large Language Models".
    """
    check_density(density)
    if norms.shape != weight.shape[1:]:
        raise ValueError(f"{weight.shape[1]} inputs need as many norms, not {list(norms.shape)}")
    return keep_largest(weight.abs() * norms, round(density * weight.shape[1]))


def keep_largest(scores: Tensor, count: int) -> Tensor:
    """bool [rows, n]: the `count` largest of each row of `scores`, of equal ones the first."""
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    return torch.cat(list(in_order(lambda rows: _keep_largest(rows, count), scores.split(PANEL))))


def _keep_largest(scores: Tensor, count: int) -> Tensor:
    least = scores.kthvalue(scores.shape[1] - count + 1, dim=1, keepdim=True).values
    above, equal = scores > least, scores == least
    room = count - above.sum(1, keepdim=True)
    return above | (equal & (equal.cumsum(1, dtype=torch.int32) <= room))


def check_density(density: float) -> None:
    """ValueError unless `density` is a share."""
    if not 0.0 <= density <= 1.0:
        raise ValueError(f"a density lies between 0 and 1, not {density}")
