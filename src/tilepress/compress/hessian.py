"""The triangular factor of a Hessian that compensation works with."""

import torch
from torch import Tensor

DAMPINGS = (0.01, 0.1, 1.0, 10.0)  # shares of the mean diagonal, tried in turn


def upper_factor(hessian: Tensor) -> Tensor:
    """float32 upper triangular U [inputs, inputs] with U Uᵀ = hessian + damping.

    GPTQ and SparseGPT use the Cholesky factor of the inverse, which is the inverse of this one; of a block of
    columns they need only that block's inverse. So the Hessian is never inverted.
    """
    for share in DAMPINGS:
        factor = _reversed_factor(hessian, share)
        if factor is not None:
            return factor.flip((0, 1))
    raise ValueError(
        f"the Hessian of {len(hessian)} inputs has no Cholesky factor, even with {DAMPINGS[-1]:g} times its mean "
        "diagonal added: it is not a mean of x xᵀ; gather the statistics anew"
    )


def damped(hessian: Tensor, share: float = DAMPINGS[0]) -> Tensor:
    """float64 copy of a Hessian with a share of its mean diagonal added to each input.

    The mean, as in GPTQ, though one huge input makes it large: shares of each input's own power let the weights of
    inputs that are hardly ever used run away, and held-out text pays for it. An input that was always zero gets the
    damping alone, so that its weights are rounded by themselves.
    """
    mean = float(hessian.diagonal().mean(dtype=torch.float64)) or 1.0
    copy = hessian.to(torch.float64, copy=True)
    copy.diagonal().add_(share * mean)
    return copy


def _reversed_factor(hessian: Tensor, share: float) -> Tensor | None:
    """float32 lower factor of the damped Hessian with its inputs in reverse, which is the upper one of the Hessian in
    reverse; None if there is none. In place, for which LAPACK wants columns: the Hessian of a wide layer is the largest
    thing in memory."""
    columns = damped(hessian.flip((0, 1)), share).T
    failure = torch.empty((), dtype=torch.int32, device=columns.device)
    torch.linalg.cholesky_ex(columns, out=(columns, failure))
    return None if int(failure) else columns.to(torch.float32)
