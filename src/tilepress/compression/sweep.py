"""GPTQ and SparseGPT: columns in order, the error of each made up for by those after it.

Frantar et al. 2022, "GPTQ", and Frantar & Alistarh 2023, "SparseGPT". `reference` is the specification. With the
Hessian H = U Uᵀ (U upper triangular) and D = W − Q of the columns done, the best values of the columns B that come
next are W_B + D U_·B U_BB⁻¹: each block starts from the weights as they came, with one matrix product, and rounding
errors of the arithmetic do not pile up. Within a block the columns update each other one by one.

Matrices are transposed here, [inputs, neurons], so that a column of weights is contiguous. Neurons depend on each other
only where SparseGPT chooses what to keep; some are swept side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..formats import Quantized, WeightFormat
from .clipping import quantized_groups, search, stacked
from .grid import Grid, concatenated, group_size, grouped, per_stored
from .prune import keep_largest
from .threads import one_thread, panels, run_all

BLOCK = 128
NEURONS = 1024  # that are swept at a time: enough for operations of one thread to be worth their call


@dataclass(frozen=True, eq=False)
class Swept:
    """values: float32 [neurons, inputs], zero where dropped. mask: bool [neurons, inputs], or None if all are kept.
    quantized: the values as codes, or None if they were not rounded."""

    values: Tensor
    mask: Tensor | None
    quantized: Quantized | None


def sweep(
    weight: Tensor,
    factor: Tensor,
    *,
    keep: Tensor | float | None = None,
    format: WeightFormat | None = None,
    clip_search: bool = True,
) -> Swept:
    """Prune, quantise, or both, with compensation.

    weight: float32 [neurons, inputs]. factor: `upper_factor` of the Hessian [inputs, inputs].
    keep: bool [neurons, inputs], the weights to keep; or the density at which to choose them on the way, block by
    block of columns (SparseGPT); or None for all. format: what kept weights are rounded to (GPTQ); None for nothing.
    """
    density = keep if isinstance(keep, float) else None
    masks = keep if isinstance(keep, Tensor) else None if keep is None else torch.ones_like(weight, dtype=torch.bool)
    parts = [
        _Sweep(weight[rows], factor, None if masks is None else masks[rows], format, clip_search)
        for rows in panels(len(weight), NEURONS)
    ]
    with one_thread():
        for block in column_blocks(weight.shape[1], format):
            run_all(partial(_Sweep.enter, block=block), parts)
            if density is not None:
                _choose(parts, block, density)
            run_all(partial(_Sweep.sweep, block=block), parts)
        return _joined([part.result() for part in parts])


def _choose(parts: Sequence["_Sweep"], block: range, density: float) -> None:
    """Keep the weights of a block, of all neurons, whose loss would cost most; of equal ones the first columns, then
    the first neurons."""
    every = torch.cat([part.updated for part in parts], 1)
    scores = every.abs() * parts[0].factor.diagonal()[block.start : block.stop].unsqueeze(1)
    masks = keep_largest(scores.view(1, -1), kept_in_block(density, every.shape[1], block)).view(every.shape)
    for part, mask in zip(parts, masks.split(NEURONS, 1), strict=True):
        assert part.mask is not None
        part.mask[block.start : block.stop] = mask


def _joined(parts: Sequence[Swept]) -> Swept:
    """Results of some neurons each, put together."""
    masks = [part.mask for part in parts if part.mask is not None]
    quantized = [part.quantized for part in parts if part.quantized is not None]
    values = torch.cat([part.values for part in parts])
    return Swept(values, torch.cat(masks) if masks else None, stacked(quantized) if quantized else None)


def column_blocks(inputs: int, format: WeightFormat | None) -> list[range]:
    """Columns that are swept together, at most BLOCK: whole groups, or parts of one larger group."""
    size = inputs if format is None else group_size(inputs, format)
    span = size * (BLOCK // size) or size
    starts = range(0, inputs, span)
    return [
        range(block, min(block + BLOCK, start + span, inputs))
        for start in starts
        for block in range(start, min(start + span, inputs), BLOCK)
    ]


def kept_in_block(density: float, rows: int, block: range) -> int:
    """Weights to keep in a block, so that all blocks together keep round(density × weights)."""
    return round(density * rows * block.stop) - round(density * rows * block.start)


class _Sweep:
    """Some neurons' state, [inputs, neurons]: final values so far, what was lost by them, what is kept; and the columns
    of the block that was entered last, as they are best when all before them are done."""

    def __init__(
        self, weight: Tensor, factor: Tensor, mask: Tensor | None, format: WeightFormat | None, clip: bool
    ) -> None:
        self.weight, self.factor = weight.T.contiguous(), factor
        self.mask = None if mask is None else mask.T.contiguous()
        self.values = torch.zeros_like(self.weight)
        self.updated = self.weight[:0]
        self.lost = torch.zeros_like(self.weight)  # D: the weights as they came less their final values
        self.columns = None if format is None else _Columns(weight.shape[1], format, clip, self.mask is not None)

    def result(self) -> Swept:
        values = self.values.T.contiguous()
        del self.weight, self.values, self.lost, self.updated  # codes take memory too
        mask = None if self.mask is None else self.mask.T.contiguous()
        return Swept(values, mask, None if self.columns is None else self.columns.quantized(values))

    def enter(self, block: range) -> None:
        self.updated = self._updated(slice(block.start, block.stop))

    def sweep(self, block: range) -> None:
        """Give the columns of the block their final values."""
        span, updated = slice(block.start, block.stop), self.updated
        inner = self.factor[span, span]
        inverse = torch.linalg.solve_triangular(inner, torch.eye(len(inner)).to(inner), upper=True)
        for i, column in enumerate(block):
            if self.columns is not None and column % self.columns.size == 0:
                self._enter_group(column, updated[i:], block)
            self.values[column] = value = self._value(column, updated[i])
            error = (updated[i] - value) / inverse[i, i]
            updated[i + 1 :].addr_(inverse[i, i + 1 :], error, alpha=-1)
        self.lost[span] = self.weight[span] - self.values[span]

    def _updated(self, span: slice) -> Tensor:
        """The columns of `span` as they are best when all columns before them are done: [columns, neurons]."""
        if span.start == 0:
            return self.weight[span].clone()
        owed = self.factor[: span.start, span].T @ self.lost[: span.start]
        update: Tensor = torch.linalg.solve_triangular(self.factor[span, span].T, owed, upper=False)
        return (self.weight[span] + update).contiguous()  # the solver's result lies transposed

    def _enter_group(self, start: int, rest_of_block: Tensor, block: range) -> None:
        assert self.columns is not None
        span = slice(start, min(start + self.columns.size, len(self.weight)))
        group = rest_of_block[: span.stop - start] if span.stop <= block.stop else self._updated(span)
        counts = self.factor.diagonal()[span].square().unsqueeze(1)
        if self.mask is not None:
            group, counts = self._masked(group, span), counts * self.mask[span]
        self.columns.enter(group, counts)

    def _value(self, column: int, updated: Tensor) -> Tensor:
        """What the weights [neurons] of a column become."""
        pruned = self._masked(updated, column)
        # Again after rounding: a table need not have a zero, and the mask then says alone what is dropped.
        return pruned if self.columns is None else self._masked(self.columns.round(pruned), column)

    def _masked(self, columns: Tensor, index: int | slice) -> Tensor:
        return columns if self.mask is None else columns.masked_fill(~self.mask[index], 0)


class _Columns:
    """Rounds column by column, against the grid of the group entered last."""

    def __init__(self, inputs: int, format: WeightFormat, clip_search: bool, sparse: bool) -> None:
        self.format, self.size, self.clip_search, self.sparse = format, group_size(inputs, format), clip_search, sparse
        self.grids: list[Grid] = []  # of each group, [neurons, 1, 1]
        self.grid = Grid(format.element)  # of the last, [neurons]

    def enter(self, group: Tensor, counts: Tensor) -> None:
        """Choose the grid of a group from its weights [columns, neurons] and what their errors count."""
        group, counts = (per_column.T.contiguous().unsqueeze(1) for per_column in (group, counts))
        grid, _ = search(group, counts, self.format, self.clip_search, sparse=self.sparse)
        self.grids.append(grid)
        self.grid = per_stored(grid, Tensor.flatten)

    def round(self, weights: Tensor) -> Tensor:
        """The numbers nearest to a column of weights [neurons]."""
        return self.grid.round(weights)

    def quantized(self, values: Tensor) -> Quantized:
        """Rounded values [neurons, inputs] as codes."""
        return quantized_groups(concatenated(self.grids, 1), grouped(values, self.format), values.shape[1])
