"""What is to be done to a weight matrix."""

from dataclasses import dataclass
from typing import Literal, get_args

from ..formats import WeightFormat
from .prune import PRUNE_SCOPES, PruneScope, check_density
from .statistics import InputStatistics

Prune = Literal["magnitude", "wanda", "sparsegpt"]
Quantize = Literal["rtn", "gptq", "learned-clip"]
Target = Literal["layer", "dense"]
ColumnOrder = Literal["input", "activation"]
PRUNE_METHODS: tuple[Prune, ...] = get_args(Prune)
QUANTIZE_METHODS: tuple[Quantize, ...] = get_args(Quantize)
TARGETS: tuple[Target, ...] = get_args(Target)
COLUMN_ORDERS: tuple[ColumnOrder, ...] = get_args(ColumnOrder)


@dataclass(frozen=True)
class WeightPlan:
    """format: what weights become. density: the share kept; `prune` says how they are chosen.

    prune_scope: whether magnitudes are compared within a row or the whole layer. quantize: how kept weights are
    rounded. clip_search: whether a group's range may be cut for a smaller error. column_order: of GPTQ and SparseGPT,
    as the inputs come, or by their power: the largest first to round, where no weight is dropped, and the smallest
    first to prune. refit: whether methods with a Hessian fit kept weights anew once the mask is known (see `refit`);
    else GPTQ with SparseGPT is one sweep. target: the outputs that methods with a Hessian match, those of the layer on
    its calibration inputs or those it has in the dense model (see `asymmetric`).
    """

    format: WeightFormat
    density: float = 1.0
    prune: Prune = "magnitude"
    prune_scope: PruneScope = "row"
    quantize: Quantize = "rtn"
    clip_search: bool = True
    column_order: ColumnOrder = "activation"
    refit: bool = True
    target: Target = "layer"

    def __post_init__(self) -> None:
        if not isinstance(self.format, WeightFormat):
            raise TypeError(f"format is a WeightFormat, as parse_weight makes it of a name, not {self.format!r}")
        check_density(self.density)
        _require_known("prune", self.prune, PRUNE_METHODS)
        _require_known("prune_scope", self.prune_scope, PRUNE_SCOPES)
        _require_known("quantize", self.quantize, QUANTIZE_METHODS)
        _require_known("column_order", self.column_order, COLUMN_ORDERS)
        _require_known("target", self.target, TARGETS)
        if self.prune_scope == "layer" and self.prune != "magnitude":
            raise ValueError(f"prune_scope 'layer' goes with prune 'magnitude' only, not with {self.prune!r}")
        if self.quantize == "learned-clip" and self.format.scaling is None:
            raise ValueError(f"learned-clip trains the scales of groups, and {self.format} has none; take rtn or gptq")

    @property
    def prunes(self) -> bool:
        return self.density < 1

    @property
    def rows_are_independent(self) -> bool:
        """Whether rows are compressed independently of each other."""
        return not self.needs_hessian and not (self.prunes and self.prune_scope == "layer")

    @property
    def needs_hessian(self) -> bool:
        """Whether calibration must have gathered the Hessian."""
        return self.quantize != "rtn" or (self.prunes and self.prune == "sparsegpt")

    @property
    def needs_drift(self) -> bool:
        """Whether calibration must have seen the dense model's inputs, too."""
        return self.needs_hessian and self.target == "dense"

    @property
    def needs_statistics(self) -> bool:
        """Whether calibration is needed at all."""
        return self.needs_hessian or (self.prunes and self.prune == "wanda")

    def check_statistics(self, statistics: InputStatistics | None, inputs: int) -> None:
        """ValueError unless `statistics` are what the plan needs of a layer with `inputs`."""
        method = self.quantize if self.quantize != "rtn" else self.prune
        if statistics is None or not statistics.count:
            if self.needs_statistics:
                raise ValueError(f"{method} needs calibration: statistics of the layer's inputs")
            return
        if statistics.inputs != inputs:
            raise ValueError(f"the layer has {inputs} inputs, its statistics {statistics.inputs}")
        if self.needs_hessian and not statistics.has_hessian:
            raise ValueError(f"{method} needs the Hessian: gather it with InputStatistics({inputs}, hessian=True)")
        if self.needs_drift and statistics.drift is None:
            raise ValueError(
                f"target dense needs the drift of inputs: gather it with InputStatistics({inputs}, drift=True)"
            )


def _require_known(field: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"{field} is one of {', '.join(known)}, not {name!r}")
