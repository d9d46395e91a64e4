"""What calibration inputs look like to one linear layer."""

import torch
from torch import Tensor

from .threads import one_thread, panels, run_all

CHUNK_TOKENS = 1024  # widened to float32 at a time


class InputStatistics:
    """Norms, and on request the Hessian, of the inputs that a linear layer has seen.

    Memory is inputs² floats with the Hessian and a few vectors without, however many inputs are added. All are
    the same bits with any number of threads.
    """

    def __init__(self, inputs: int, hessian: bool = True, device: torch.device | str = "cpu") -> None:
        if type(inputs) is not int or inputs < 1:
            raise ValueError(f"a layer has at least one input, not {inputs!r}")
        self.inputs = inputs
        self.count = 0
        with torch.inference_mode(False):  # a tensor made in inference mode could not be added to outside it
            self._squares = torch.zeros(inputs, dtype=torch.float64, device=device)
            self._mean = torch.zeros(inputs, inputs, device=device) if hessian else None

    def __repr__(self) -> str:
        parts = "norms and Hessian" if self.has_hessian else "norms"
        return f"InputStatistics({self.inputs} inputs, {self.count} vectors, {parts})"

    def add(self, x: Tensor) -> None:
        """Count inputs [..., inputs], in any float type. Refused ones leave the statistics as they were."""
        if x.ndim < 1 or x.shape[-1] != self.inputs:
            raise ValueError(f"the layer takes [..., {self.inputs}], not {list(x.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"calibration inputs are floats, not {x.dtype}")
        chunks = torch.split(x.detach().reshape(-1, self.inputs), CHUNK_TOKENS)
        with one_thread():
            self._squares += self._checked_squares(chunks)
            for chunk in chunks:
                self._add_outer_products(chunk)

    @property
    def has_hessian(self) -> bool:
        return self._mean is not None

    @property
    def norms(self) -> Tensor:
        """float32 [inputs]: the root mean square of each input."""
        self._require_inputs()
        return (self._squares / self.count).sqrt().to(torch.float32)

    @property
    def hessian(self) -> Tensor:
        """float32 [inputs, inputs]: the mean of x xᵀ. Not a copy."""
        self._require_inputs()
        if self._mean is None:
            raise ValueError("these statistics keep norms only: gather them with InputStatistics(inputs, hessian=True)")
        return self._mean

    def _checked_squares(self, chunks: tuple[Tensor, ...]) -> Tensor:
        """float64 [inputs], the sums of squares; ValueError if a square is no float32, the Hessian's type."""
        squares = torch.zeros_like(self._squares)
        for chunk in chunks:
            squares += chunk.to(squares.device, torch.float32).square().sum(0, dtype=torch.float64)
        if not bool(squares.isfinite().all()):
            bad = sum(int((~chunk.isfinite()).sum()) for chunk in chunks)
            raise ValueError(
                f"calibration inputs must be finite: {bad} are not"
                if bad
                else "calibration inputs are too large: their squares do not fit float32"
            )
        return squares

    def _add_outer_products(self, chunk: Tensor) -> None:
        if not len(chunk):
            return
        total = self.count + len(chunk)
        mean = self._mean
        if mean is not None:
            x = chunk.to(mean.device, torch.float32)
            shares = {"beta": self.count / total, "alpha": 1 / total}
            run_all(lambda rows: mean[rows].addmm_(x[:, rows].T, x, **shares), panels(self.inputs))
        self.count = total

    def _require_inputs(self) -> None:
        if not self.count:
            raise ValueError("no calibration inputs were added yet")
