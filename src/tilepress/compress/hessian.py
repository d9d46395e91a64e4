"""The triangular factor of a Hessian that compensation works with."""

from collections.abc import Iterator

import torch
from torch import Tensor

DAMPINGS = (0.01, 0.1, 1.0, 10.0)  # shares of the mean diagonal, tried in turn


def upper_factor(hessian: Tensor) -> Tensor:
    """float32 upper triangular U [inputs, inputs] with U Uᵀ = hessian + damping.

    GPTQ and SparseGPT use the Cholesky factor of the inverse, which is the inverse of this one; of a block of
    columns they need only that block's inverse. So the Hessian is never inverted.
    """
    for damped in dampings(hessian):
        # Cholesky gives lower factors: of the matrix with its inputs in reverse, the upper one of this.
        factor, failure = torch.linalg.cholesky_ex(damped.flip((0, 1)))
        if not int(failure):
            upper: Tensor = factor.flip((0, 1)).to(torch.float32)
            return upper
    raise ValueError(
        f"the Hessian of {len(hessian)} inputs has no Cholesky factor, even with {DAMPINGS[-1]:g} times its mean "
        "diagonal added: it is not a mean of x xᵀ; gather the statistics anew"
    )


def dampings(hessian: Tensor) -> Iterator[Tensor]:
    """float64 Hessians with ever more of their mean diagonal added to each input.

    The mean, as in GPTQ, though one huge input makes it large: shares of each input's own power let the weights of
    inputs that are hardly ever used run away, and held-out text pays for it. An input that was always zero gets the
    damping alone, so that its weights are rounded by themselves.
    """
    mean = float(hessian.diagonal().mean(dtype=torch.float64)) or 1.0
    for share in DAMPINGS:
        damped = hessian.to(torch.float64, copy=True)
        damped.diagonal().add_(share * mean)
        yield damped
