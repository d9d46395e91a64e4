"""Kept weights fitted anew: the best ones for a given mask, by conjugate gradients.

A sweep that drops weights moves each loss to the columns after it alone, and part of it to weights that are dropped
later. For a mask that is known, the weights Q with the least output error tr((Q − W) H (Q − W)ᵀ) solve a system of
linear equations for each neuron; a few steps of conjugate gradients, for many neurons at once, come close (Boža 2024,
"Fast and Effective Weight Update for Pruned Large Language Models", and Meng et al. 2024, "ALPS", go the same way).

What is rounded afterwards may aim for Q in place of W: with that mask, both errors differ by a constant.
"""

import torch
from torch import Tensor

from .hessian import DAMPINGS
from .threads import one_thread, panels, run_all

STEPS = 20


def refit(weight: Tensor, mask: Tensor, hessian: Tensor, start: Tensor) -> Tensor:
    """float32 [neurons, inputs]: nearly the best weights, zero where `mask` is false; no worse than `start`, which is
    zero there, too. The Hessian is damped as in `hessian.damped`."""
    result = torch.empty_like(weight)
    damping = DAMPINGS[0] * (float(hessian.diagonal().mean(dtype=torch.float64)) or 1.0)

    def fit(rows: slice) -> None:
        result[rows] = _conjugate_gradients(weight[rows], mask[rows], hessian, damping, start[rows])

    with one_thread():
        run_all(fit, panels(len(weight)))
    return result


def _conjugate_gradients(weight: Tensor, mask: Tensor, hessian: Tensor, damping: float, start: Tensor) -> Tensor:
    """Preconditioned with the diagonal; each row takes steps of its own length."""

    def product(x: Tensor) -> Tensor:
        return (x @ hessian).add_(x, alpha=damping).mul_(mask)

    tiny, scale = torch.finfo(weight.dtype).tiny, hessian.diagonal() + damping
    values, residual = start.clone(), product(weight - start)
    ahead = residual / scale
    direction, power = ahead.clone(), (residual * ahead).sum(1, keepdim=True)
    for _ in range(STEPS):
        spread = product(direction)
        step = power / (direction * spread).sum(1, keepdim=True).clamp(min=tiny)
        values, residual = values + step * direction, residual - step * spread
        ahead = residual / scale
        before, power = power, (residual * ahead).sum(1, keepdim=True)
        direction = ahead + power / before.clamp(min=tiny) * direction
    return values
