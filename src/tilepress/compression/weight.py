"""One weight matrix compressed as planned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..formats import Quantized, WeightFormat, dequantize
from ..formats.tensors import check_weight
from .asymmetric import aimed
from .clipping import rtn, stacked
from .grid import row_spans
from .hessian import activation_order, upper_factor
from .learned import learned_clip
from .plan import WeightPlan
from .prune import magnitude_mask, wanda_mask
from .refit import refit
from .source_grid import find_grid
from .statistics import InputStatistics
from .sweep import sweep
from .threads import in_order, one_thread, panels

CHUNK_INPUTS = 512


@dataclass(frozen=True, eq=False)
class CompressedWeight:
    """quantized: codes, scales and zero points of all weights; a dropped one has the code of zero.

    mask: bool [neurons, inputs], true where a weight is kept; None if the plan's density is 1. A table without a zero
    gives dropped weights some code; the mask then says alone that they are zero.
    error: `output_error` of the result.
    grid_error: of weights that came on a grid of the format and were taken as they are: the largest distance from it,
        in steps. None where weights were rounded.
    """

    quantized: Quantized
    mask: Tensor | None
    error: float
    grid_error: float | None = None

    def to(self, device: torch.device | str) -> "CompressedWeight":
        """The same on another device."""
        quantized = self.quantized
        arrays = (quantized.codes, quantized.scales, quantized.zeros, self.mask)
        codes, scales, zeros, mask = (None if array is None else array.to(device) for array in arrays)
        assert codes is not None
        return replace(self, quantized=Quantized(codes, scales, zeros), mask=mask)


def compress_weight(weight: Tensor, plan: WeightPlan, statistics: InputStatistics | None = None) -> CompressedWeight:
    """Prune and quantise a finite float matrix [neurons, inputs]; the result lies on its device.

    Weights that lie on a grid of the format already are not rounded again, whatever the method, unless some are to be
    dropped: see `source_grid`.

    Statistics that a plan does not need still help: clipping weighs errors by the norms of the inputs. The result is
    the same bits with any number of torch's threads. Where the plan's target is dense, `error` is of the outputs that
    are aimed for, see `asymmetric`.
    """
    weight = check_weight(weight).detach()
    if not all(bool(torch.isfinite(weight[span]).all()) for span in row_spans(weight)):
        raise ValueError(f"weights must be finite: {int((~torch.isfinite(weight)).sum())} are not")
    plan.check_statistics(statistics, weight.shape[1])
    statistics = statistics if statistics is not None and statistics.count else None
    with torch.no_grad(), one_thread():
        grid = None if plan.prunes else find_grid(weight, plan.format)
        if grid is not None:
            result = CompressedWeight(grid.quantized, None, math.nan, grid.error)
            return replace(result, error=_error(weight, result, plan.format, statistics))
        if plan.needs_drift:
            assert statistics is not None
            weight = _aimed(weight, statistics)
        spans = row_spans(weight) if plan.rows_are_independent else [slice(None)]
        parts = [_compress(weight[span].to(torch.float32), plan, statistics) for span in spans]
        return measured(weight, CompressedWeight(*_joined(parts), math.nan), plan.format, statistics)


def decompress_weight(compressed: CompressedWeight, format: WeightFormat) -> Tensor:
    """float32 [neurons, inputs]: the weights that a result stands for."""
    values = dequantize(compressed.quantized, format)
    return values if compressed.mask is None else values.masked_fill(~compressed.mask, 0)


def measured(
    weight: Tensor, result: CompressedWeight, format: WeightFormat, statistics: InputStatistics | None = None
) -> CompressedWeight:
    """`result`, which was made of `weight`, with its error."""
    with torch.no_grad():
        return replace(result, error=_error(weight, result, format, statistics))


def output_error(weight: Tensor, approximation: Tensor, statistics: InputStatistics | None = None) -> float:
    """How much of the layer's output is lost: tr(Δ H Δᵀ) / tr(W H Wᵀ), Δ = approximation − W.

    H is the Hessian; the diagonal of squared norms where statistics have no more; the identity without them. Infinite
    where an output that was zero no longer is.
    """
    return _share(_output_power(approximation - weight, statistics), _output_power(weight, statistics))


def _error(weight: Tensor, result: CompressedWeight, format: WeightFormat, statistics: InputStatistics | None) -> float:
    """`output_error` of a result, some rows at a time."""

    def powers(span: slice) -> tuple[float, float]:
        rows = weight[span].to(torch.float32)
        lost = decompress_weight(_rows(result, span), format).sub_(rows)
        return _output_power(lost, statistics), _output_power(rows, statistics)

    lost, whole = zip(*in_order(powers, panels(len(weight))), strict=True)
    return _share(sum(lost), sum(whole))


def _share(lost: float, whole: float) -> float:
    return lost / whole if whole else math.inf if lost else 0.0


def _rows(result: CompressedWeight, span: slice) -> CompressedWeight:
    quantized = result.quantized
    arrays = (quantized.codes, quantized.scales, quantized.zeros, result.mask)
    codes, scales, zeros, mask = (None if array is None else array[span] for array in arrays)
    assert codes is not None
    return CompressedWeight(Quantized(codes, scales, zeros), mask, math.nan)


def _joined(parts: Sequence[tuple[Quantized, Tensor | None]]) -> tuple[Quantized, Tensor | None]:
    """Results of some rows each, put together."""
    masks = [mask for _, mask in parts if mask is not None]
    return stacked([quantized for quantized, _ in parts]), torch.cat(masks) if masks else None


def _compress(weight: Tensor, plan: WeightPlan, statistics: InputStatistics | None) -> tuple[Quantized, Tensor | None]:
    hessian = statistics.hessian.to(weight.device) if statistics is not None and plan.needs_hessian else None
    keep = _keep(weight, plan, statistics)
    if hessian is not None and plan.quantize == "gptq" and (keep is None or not plan.refit):
        return _rounded(weight, plan, hessian, keep)
    pruned, mask = _prune(weight, plan, hessian, keep)
    if plan.quantize == "gptq":
        assert hessian is not None
        return _rounded(pruned, plan, hessian, mask)
    if plan.quantize == "learned-clip":
        assert hessian is not None
        clip_search = plan.clip_search
        return learned_clip(pruned, plan.format, hessian, target=weight, mask=mask, clip_search=clip_search), mask
    importance = None if statistics is None else statistics.norms.to(weight.device).square()
    return rtn(pruned, plan.format, mask=mask, importance=importance, clip_search=plan.clip_search), mask


def _rounded(
    weight: Tensor, plan: WeightPlan, hessian: Tensor, keep: Tensor | float | None
) -> tuple[Quantized, Tensor | None]:
    """GPTQ. Where weights are dropped, columns come as the inputs do: no other order was better at both."""
    by_activation = plan.column_order == "activation" and keep is None
    order = activation_order(hessian) if by_activation else None
    factor = upper_factor(hessian, order)
    swept = sweep(weight, factor, keep=keep, format=plan.format, clip_search=plan.clip_search, order=order)
    assert swept.quantized is not None
    return swept.quantized, swept.mask


def _aimed(weight: Tensor, statistics: InputStatistics) -> Tensor:
    assert statistics.drift is not None
    hessian, drift = (matrix.to(weight.device) for matrix in (statistics.hessian, statistics.drift))
    return aimed(weight.to(torch.float32), upper_factor(hessian), drift)


def _keep(weight: Tensor, plan: WeightPlan, statistics: InputStatistics | None) -> Tensor | float | None:
    """The mask of weights to keep; SparseGPT's density, whose mask is chosen on the way; None to keep all."""
    if not plan.prunes:
        return None
    if plan.prune == "magnitude":
        return magnitude_mask(weight, plan.density, plan.prune_scope)
    if plan.prune == "wanda":
        assert statistics is not None
        return wanda_mask(weight, statistics.norms.to(weight.device), plan.density)
    return float(plan.density)


def _prune(
    weight: Tensor, plan: WeightPlan, hessian: Tensor | None, keep: Tensor | float | None
) -> tuple[Tensor, Tensor | None]:
    """The weights with zeros where dropped, and the mask of those kept; fitted anew where there is a Hessian."""
    if keep is None:
        return weight, None
    if isinstance(keep, float):
        assert hessian is not None
        # Weak inputs first: most of what is dropped is theirs, and all others are left to make up for it.
        order = activation_order(hessian).flip(0) if plan.column_order == "activation" else None
        swept = sweep(weight, upper_factor(hessian, order), keep=keep, order=order)
        assert swept.mask is not None
        pruned, mask = swept.values, swept.mask
    else:
        pruned, mask = weight.masked_fill(~keep, 0), keep
    return (pruned if hessian is None or not plan.refit else refit(weight, mask, hessian, pruned)), mask


def _output_power(weight: Tensor, statistics: InputStatistics | None) -> float:
    """tr(W H Wᵀ), summed in float64."""
    if statistics is None:
        return float(weight.double().square().sum())
    if not statistics.has_hessian:
        return float((weight * statistics.norms.to(weight.device)).double().square().sum())
    hessian = statistics.hessian.to(weight.device)
    power = 0.0
    for start in range(0, weight.shape[1], CHUNK_INPUTS):
        block = slice(start, start + CHUNK_INPUTS)
        # H is symmetric: what lies on one side of the diagonal blocks counts twice.
        spread = weight[:, block] @ hessian[block, block] + 2 * (weight[:, :start] @ hessian[:start, block])
        power += float((weight[:, block] * spread).sum(dtype=torch.float64))
    return max(power, 0.0)
