"""GPTQ and SparseGPT: columns in order, the error of each made up for by those after it.

Frantar et al. 2022, "GPTQ", and Frantar & Alistarh 2023, "SparseGPT". `reference` is the specification. With the
Hessian H = U Uᵀ (U upper triangular) and D = W − Q of the columns done, the best values of the columns B that come
next are W_B + D U_·B U_BB⁻¹: each block starts from the weights as they came, with one matrix product, and rounding
errors of the arithmetic do not pile up. Within a block the columns update each other one by one.

Columns may come in any order; grids of groups are then chosen before the sweep, else on the way.

Matrices are transposed here, [inputs, neurons], so that a column of weights is contiguous. Neurons depend on each other
only where SparseGPT chooses what to keep; some are swept side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..formats import Quantized, WeightFormat
from .clipping import stacked
from .grid import group_size
from .group_grids import Grids, GridsBeforehand, GridsOnTheWay
from .prune import keep_largest
from .threads import at_a_time, one_thread, panels, run_all

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
    order: Tensor | None = None,
) -> Swept:
    """Prune, quantise, or both, with compensation.

    weight: float32 [neurons, inputs]. factor: `upper_factor` of the Hessian [inputs, inputs], in `order`.
    keep: bool [neurons, inputs], the weights to keep; or the density at which to choose them on the way, block by
    block of columns (SparseGPT); or None for all. format: what kept weights are rounded to (GPTQ); None for nothing.
    order: [inputs], the columns as they are to be swept, `activation_order` say; as they come if not given.
    """
    sweeps = _Sweeps(weight, factor, keep, format, clip_search, order)
    with one_thread():
        for block in sweeps.blocks:
            run_all(partial(_Sweep.enter, block=block), sweeps.parts)
            if isinstance(keep, float):
                _choose(sweeps.parts, block, sweeps.kept_in(block))
            run_all(partial(_Sweep.sweep, block=block), sweeps.parts)
        return _joined([part.result() for part in sweeps.parts])


def _choose(parts: Sequence["_Sweep"], block: range, count: int) -> None:
    """Keep the `count` weights of a block, of all neurons, whose loss would cost most; of equal ones the first columns,
    then the first neurons."""
    every = torch.cat([part.updated for part in parts], 1)
    scores = every.abs() * parts[0].factor.diagonal()[block.start : block.stop].unsqueeze(1)
    masks = keep_largest(scores.view(1, -1), count).view(every.shape)
    for part, mask in zip(parts, masks.split(at_a_time(NEURONS, masks.device), 1), strict=True):
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


def expected_mask(weight: Tensor, costs: Tensor, density: float) -> Tensor:
    """bool [neurons, inputs]: the weights that would be kept if none had changed when its column is reached.

    costs: [inputs], what a squared error counts at each.
    """
    scores = weight.abs() * costs.sqrt()
    return keep_largest(scores.view(1, -1), round(density * weight.numel())).view(weight.shape)


class _Sweeps:
    """A layer's neurons, some of them a part, and the blocks of columns that are swept together."""

    def __init__(
        self,
        weight: Tensor,
        factor: Tensor,
        keep: Tensor | float | None,
        format: WeightFormat | None,
        clip: bool,
        order: Tensor | None,
    ) -> None:
        inputs = weight.shape[1]
        self.blocks = column_blocks(inputs, format if order is None else None)
        self.order = torch.arange(inputs, device=weight.device) if order is None else order
        self.keep, self.neurons = keep, len(weight)
        costs = factor.new_empty(inputs).scatter_(0, self.order, factor.diagonal().square())
        sparse = keep is not None
        mask = keep if isinstance(keep, Tensor) else None
        if isinstance(keep, float) and order is not None:
            mask = expected_mask(weight, costs, keep)
        self.expected = mask

        def grids(rows: slice) -> Grids | None:
            if format is None:
                return None
            if order is None:
                return GridsOnTheWay(inputs, format, clip, sparse)
            return GridsBeforehand(weight[rows], costs, None if mask is None else mask[rows], format, clip)

        masks = mask if not isinstance(keep, float) else torch.ones_like(weight, dtype=torch.bool)
        self.parts = [
            _Sweep(weight[rows], factor, None if masks is None else masks[rows], self.order, grids(rows))
            for rows in panels(len(weight), at_a_time(NEURONS, weight.device))
        ]

    def kept_in(self, block: range) -> int:
        """Weights of a block to keep where they are chosen on the way."""
        assert isinstance(self.keep, float)
        if self.expected is None:
            return kept_in_block(self.keep, self.neurons, block)
        return int(self.expected[:, self.order[block.start : block.stop]].sum())


class _Sweep:
    """Some neurons' state, [inputs, neurons] in the order of the sweep: final values so far, what was lost by them,
    what is kept; and the columns of the block that was entered last, as they are best when all before them are done."""

    def __init__(self, weight: Tensor, factor: Tensor, mask: Tensor | None, order: Tensor, grids: Grids | None) -> None:
        self.weight, self.factor, self.order, self.grids = weight.T[order], factor, order, grids
        self.inputs = order.tolist()
        self.mask = None if mask is None else mask.T[order]
        self.values = torch.zeros_like(self.weight)
        self.updated = self.weight[:0]
        self.lost = torch.zeros_like(self.weight)  # D: the weights as they came less their final values

    def result(self) -> Swept:
        del self.weight, self.lost, self.updated  # codes take memory too
        place = self.order.argsort()
        values = self.values[place].T.contiguous()
        del self.values
        mask = None if self.mask is None else self.mask[place].T.contiguous()
        return Swept(values, mask, None if self.grids is None else self.grids.quantized(values))

    def enter(self, block: range) -> None:
        self.updated = self._updated(slice(block.start, block.stop))

    def sweep(self, block: range) -> None:
        """Give the columns of the block their final values."""
        span, updated = slice(block.start, block.stop), self.updated
        inner = self.factor[span, span]
        unit = torch.eye(len(inner), dtype=inner.dtype, device=inner.device)
        inverse = torch.linalg.solve_triangular(inner, unit, upper=True)
        for i, column in enumerate(block):
            if self.grids is not None and self.grids.begins(column):
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
        assert self.grids is not None
        span = slice(start, min(start + self.grids.size, len(self.weight)))
        group = rest_of_block[: span.stop - start] if span.stop <= block.stop else self._updated(span)
        counts = self.factor.diagonal()[span].square().unsqueeze(1)
        if self.mask is not None:
            group, counts = self._masked(group, span), counts * self.mask[span]
        self.grids.enter(group, counts)

    def _value(self, column: int, updated: Tensor) -> Tensor:
        """What the weights [neurons] of a column become."""
        pruned = self._masked(updated, column)
        # Again after rounding: a table need not have a zero, and the mask then says alone what is dropped.
        return pruned if self.grids is None else self._masked(self.grids.round(self.inputs[column], pruned), column)

    def _masked(self, columns: Tensor, index: int | slice) -> Tensor:
        return columns if self.mask is None else columns.masked_fill(~self.mask[index], 0)
