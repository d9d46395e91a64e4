"""The triangular factor of a Hessian that compensation works with."""

import torch
from torch import Tensor

from .threads import one_thread, panels, run_all

DAMPINGS = (0.01, 0.1, 1.0, 10.0)  # shares of the mean diagonal, tried in turn


def upper_factor(hessian: Tensor, order: Tensor | None = None) -> Tensor:
    """float32 upper triangular U [inputs, inputs] with U Uᵀ = hessian + damping.

    order: a permutation [inputs]; the factor is then of the Hessian with its inputs in that order.

    GPTQ and SparseGPT use the Cholesky factor of the inverse, which is the inverse of this one; of a block of
    columns they need only that block's inverse. So the Hessian is never inverted.
    """
    for share in DAMPINGS:
        factor = damped(_reversed(hessian, order), share)
        if factorise(factor):
            factor = factor.to(torch.float32)  # the float64 one goes before the copy that turns it round
            return factor.flip((0, 1))  # of the inputs in reverse it is the lower one
    raise ValueError(
        f"the Hessian of {len(hessian)} inputs has no Cholesky factor, even with {DAMPINGS[-1]:g} times its mean "
        "diagonal added: it is not a mean of x xᵀ; gather the statistics anew"
    )


def activation_order(hessian: Tensor) -> Tensor:
    """The inputs by falling power, a permutation [inputs]; of equal ones the first is first."""
    return hessian.diagonal().argsort(descending=True, stable=True)


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


def _reversed(hessian: Tensor, order: Tensor | None) -> Tensor:
    if order is None:
        return hessian.flip((0, 1))
    index = order.flip(0)
    return hessian.index_select(0, index).index_select(1, index)  # no indices for each pair of inputs


def factorise(matrix: Tensor) -> bool:
    """Put the lower Cholesky factor in the place of a symmetric matrix; False if it has none. In place, since the
    Hessian of a wide layer is the largest thing in memory; the same bits with any number of threads."""
    with one_thread():
        for columns in panels(len(matrix)):
            if not _factorise_columns(matrix, columns):
                return False
    matrix.tril_()
    return True


def _factorise_columns(matrix: Tensor, columns: slice) -> bool:
    """The factor's columns, and what they leave of the matrix to the right of them."""
    corner, failure = torch.linalg.cholesky_ex(matrix[columns, columns])
    if int(failure):
        return False
    matrix[columns, columns] = corner
    below = [slice(columns.stop + rows.start, columns.stop + rows.stop) for rows in panels(len(matrix) - columns.stop)]

    def solve(rows: slice) -> None:
        part = matrix[rows, columns]
        part.copy_(torch.linalg.solve_triangular(corner.mT, part, upper=True, left=False))

    def subtract(rows: slice) -> None:
        right = slice(columns.stop, rows.stop)
        matrix[rows, right] -= matrix[rows, columns] @ matrix[right, columns].T

    run_all(solve, below)
    run_all(subtract, below)
    return True
