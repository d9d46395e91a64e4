"""Weights whose outputs on the inputs at hand are nearest to the dense model's: asymmetric calibration.

Li et al. 2025, "GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration". A layer in a compressed
model is given x where the dense model gives it x̃. Compressed weights Q that match W x̃ rather than W x have the error

    E ‖Q x − W x̃‖² = E ‖(Q − A) x‖² + what no Q can change,    A = W (I + E[(x̃ − x) xᵀ] H⁻¹),

so that any method that works with the Hessian matches the dense model when it is given A in place of W. The paper moves
each column's share to the columns after it, within the sweep; here all of it is moved at once, before.
"""

import torch
from torch import Tensor

from .threads import one_thread, panels, run_all


def aimed(weight: Tensor, factor: Tensor, drift: Tensor) -> Tensor:
    """A, float32 [neurons, inputs]; with a drift of zero, the weights as they are.

    factor: `upper_factor` of the Hessian [inputs, inputs], its inputs as they come. drift: E[(x̃ − x) xᵀ].
    """
    result = torch.empty_like(weight)

    def aim(rows: slice) -> None:
        owed = torch.linalg.solve_triangular(factor.mT, weight[rows] @ drift, upper=False, left=False)
        result[rows] = weight[rows] + torch.linalg.solve_triangular(factor, owed, upper=True, left=False)

    with one_thread():
        run_all(aim, panels(len(weight)))
    return result
