"""What calibration inputs look like to one linear layer."""

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from .threads import one_thread, panels, run_all

CHUNK_TOKENS = 1024  # widened to float32 at a time


class InputStatistics:
    """Norms, and on request the Hessian, of the inputs that a linear layer has seen; and the drift of those inputs
    from what the layer sees in the dense model.

    Memory is inputs² floats with the Hessian, as many with the drift, and a few vectors without, however many inputs
    are added. All are the same bits with any number of threads.

    rows: those of the Hessian and the drift that are kept, if not all; whole panels, so that they are the same bits.
        Such pieces of all rows, each given all inputs, are the statistics together, see `joined`.
    """

    def __init__(
        self,
        inputs: int,
        hessian: bool = True,
        device: torch.device | str = "cpu",
        *,
        drift: bool = False,
        rows: slice | None = None,
    ) -> None:
        if type(inputs) is not int or inputs < 1:
            raise ValueError(f"a layer has at least one input, not {inputs!r}")
        self.inputs = inputs
        self.count = 0
        self._rows = slice(0, inputs) if rows is None else rows
        kept = self._rows.stop - self._rows.start
        with torch.inference_mode(False):  # a tensor made in inference mode could not be added to outside it
            self._squares = torch.zeros(inputs, dtype=torch.float64, device=device)
            self._mean = torch.zeros(kept, inputs, device=device) if hessian else None
            self._drift = torch.zeros(kept, inputs, device=device) if drift else None

    @classmethod
    def joined(cls, pieces: Sequence["InputStatistics"]) -> "InputStatistics":
        """The statistics that pieces of all rows, in order, are together."""
        whole = copy(pieces[0])
        whole._rows = slice(0, whole.inputs)
        whole._mean = _stacked([piece._mean for piece in pieces])
        whole._drift = _stacked([piece._drift for piece in pieces])
        return whole

    def __repr__(self) -> str:
        parts = "norms and Hessian" if self.has_hessian else "norms"
        return f"InputStatistics({self.inputs} inputs, {self.count} vectors, {parts})"

    def add(self, x: Tensor, dense: Tensor | None = None) -> None:
        """Count inputs [..., inputs], in any float type. Refused ones leave the statistics as they were.

        dense: what the layer is given in the dense model in their place; the same if not given.
        """
        if x.ndim < 1 or x.shape[-1] != self.inputs:
            raise ValueError(f"the layer takes [..., {self.inputs}], not {list(x.shape)}")
        if not x.is_floating_point():
            raise TypeError(f"calibration inputs are floats, not {x.dtype}")
        chunks = torch.split(x.detach().reshape(-1, self.inputs), CHUNK_TOKENS)
        ideals = chunks if dense is None else self._checked_dense(x, dense)
        with one_thread():
            if self._rows.start == 0:  # vectors are of all inputs, and in the first piece alone
                self._squares += self._checked_squares(chunks)
            for chunk, ideal in zip(chunks, ideals, strict=True):
                self._add_outer_products(chunk, ideal)

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

    @property
    def drift(self) -> Tensor | None:
        """float32 [inputs, inputs]: the mean of (dense − x) xᵀ, if it was to be gathered. Not a copy."""
        self._require_inputs()
        return self._drift

    def _checked_dense(self, x: Tensor, dense: Tensor) -> tuple[Tensor, ...]:
        if dense.shape != x.shape:
            raise ValueError(f"inputs of the dense model are {list(dense.shape)}, those in their place {list(x.shape)}")
        if not bool(dense.isfinite().all()):
            raise ValueError(f"inputs of the dense model must be finite: {int((~dense.isfinite()).sum())} are not")
        return torch.split(dense.detach().reshape(-1, self.inputs), CHUNK_TOKENS)

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

    def _add_outer_products(self, chunk: Tensor, dense: Tensor) -> None:
        if not len(chunk):
            return
        x = chunk.to(self._squares.device, torch.float32)
        if self._mean is not None:
            self._add_products(self._mean, x, x)
        if self._drift is not None:
            self._add_products(self._drift, dense.to(x) - x, x)
        self.count += len(chunk)

    def _add_products(self, mean: Tensor, left: Tensor, right: Tensor) -> None:
        """Let `mean`, of the vectors before, be that of left rightᵀ of these, too."""
        total = self.count + len(left)
        shares = {"beta": self.count / total, "alpha": 1 / total}
        left = left[:, self._rows]
        run_all(lambda rows: mean[rows].addmm_(left[:, rows].T, right, **shares), panels(len(mean)))

    def _require_inputs(self) -> None:
        if not self.count:
            raise ValueError("no calibration inputs were added yet")


def _stacked(parts: Sequence[Tensor | None]) -> Tensor | None:
    rows = [part for part in parts if part is not None]
    return rows[0] if len(rows) == 1 else torch.cat(rows) if rows else None
