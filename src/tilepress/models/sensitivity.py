"""What a model loses when one of its layers is compressed, for each of several formats and densities.

The loss is the squared error of the block's output as a share of the output's power, token by token (as `reconstruct`
has it), in the model as it came with this one layer compressed. Blocks add to a stream of hidden states that the norms
after them divide by, so shares of it compare between layers and blocks, and small ones nearly add up. It needs no
gradients, and one block in memory at a time.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ..compression import InputStatistics, WeightPlan
from ..compression.threads import one_by_one, one_thread
from ..compression.weight import decompress_weight
from .blocks import REST, find_blocks, linear_layers, stage_state
from .calibration import in_float32
from .device import CPU, moved
from .hidden_states import HiddenStates
from .layer import compress_named
from .layer_inputs import statistics_of
from .reconstruct import relative_error
from .routing import routed_layers, sufficient, without_statistics
from .storage import Progress, Storage


@dataclass(frozen=True)
class Unit:
    """Layers of one block that take a format together: one layer, or a projection of all experts of a mixture.
    `match`: their pattern in a recipe; `shape`: [neurons, inputs] of each."""

    match: str
    layers: tuple[str, ...]
    shape: tuple[int, int]

    @property
    def weights(self) -> int:
        return len(self.layers) * self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class Stored:
    """A tensor that no unit has, as it comes."""

    shape: tuple[int, ...]
    itemsize: int


class Results(Protocol):
    """Where what was measured is kept."""

    def missing(self, unit: Unit, choices: Iterable[str]) -> list[str]:
        """Those of the choices whose loss is not known yet."""

    def put(self, stage: str, losses: Mapping[str, Mapping[str, float]], others: Mapping[str, Stored]) -> None:
        """Of one stage: for each unit's `match` choice → loss, and the tensors that no unit has."""

    def has(self, stage: str) -> bool:
        """Whether `put` was called for it."""


def units_of(model: nn.Module) -> dict[str, list[Unit]]:
    """Block → units, of a model in linear form; ValueError where there are no blocks."""
    blocks, routed = find_blocks(model), routed_layers(model)
    if not blocks:
        raise ValueError(f"{type(model).__name__} has no list of blocks with linear layers, so none can be measured")
    return {stage: _units(linear_layers(block, stage), routed) for stage, block in blocks.items()}


def _units(layers: Mapping[str, nn.Linear], routed: set[str]) -> list[Unit]:
    groups: dict[str, list[str]] = {}
    for name in layers:
        groups.setdefault(_match(name) if name in routed else name, []).append(name)
    return [
        Unit(match, tuple(names), (layers[names[0]].out_features, layers[names[0]].in_features))
        for match, names in groups.items()
    ]


def _match(expert: str) -> str:
    """The layer's name with * for the number of its expert, which is the part before the last."""
    mixture, _, projection = expert.rsplit(".", 2)
    return f"{mixture}.*.{projection}"


class Sensitivity:
    """Measures `model`, in linear form, on `windows` [sequences, length].

    plans: choice → what becomes of a weight. calibrated: whether compression will have statistics of inputs.
    """

    def __init__(
        self,
        model: nn.Module,
        plans: Mapping[str, WeightPlan],
        windows: Tensor,
        storage: Storage,
        *,
        calibrated: bool,
        device: torch.device = CPU,
    ) -> None:
        self.units, self.blocks = units_of(model), find_blocks(model)
        self._model, self._plans, self._windows, self._storage = model, plans, windows, storage
        self._calibrated, self._device = calibrated, device

    def run(self, results: Results, progress: Callable[[Progress], None] = lambda _: None) -> None:
        """Measure what `results` miss, block after block."""
        todo = {stage: self._missing(stage, results) for stage in self.blocks}
        if all(map(results.has, (*self.blocks, REST))) and not any(todo.values()):
            return
        counter = _Counter(sum(len(choices) for one in todo.values() for choices in one.values()), progress)
        alone = nullcontext() if self._device == CPU else one_by_one()
        with torch.no_grad(), one_thread(), alone:
            self._storage.fetch(REST)
            results.put(REST, {}, self._others(REST))
            hidden = HiddenStates(
                self._model, self.blocks, self._windows, self._storage, dense=False, device=self._device
            )
            for stage in self.blocks:
                self._storage.fetch(stage)
                others = self._others(stage)
                results.put(stage, self._measure_block(stage, hidden, todo[stage], counter), others)
                self._storage.finish(stage, [])

    def _missing(self, stage: str, results: Results) -> dict[Unit, list[str]]:
        missing = {unit: results.missing(unit, self._plans) for unit in self.units[stage]}
        return {unit: choices for unit, choices in missing.items() if choices}

    def others(self, itemsize: Callable[[str], int]) -> dict[str, Stored]:
        """Tensors that no unit has, of all stages, before any is fetched. `itemsize`: of a tensor in the files."""
        every = (self._others(stage) for stage in (REST, *self.blocks))
        return {name: Stored(one.shape, itemsize(name)) for own in every for name, one in own.items()}

    def _others(self, stage: str) -> dict[str, Stored]:
        """Tensors of the stage that no unit has; those that are shared, once."""
        weights = {f"{name}.weight" for units in self.units.values() for unit in units for name in unit.layers}
        state = stage_state(self._model, stage, self.blocks)
        return {
            name: Stored(tuple(one.shape), one.element_size()) for name, one in state.items() if name not in weights
        }

    def _measure_block(
        self, stage: str, hidden: HiddenStates, todo: Mapping[Unit, Sequence[str]], counter: "_Counter"
    ) -> dict[str, dict[str, float]]:
        block, losses = self.blocks[stage], dict[str, dict[str, float]]()
        layers = linear_layers(block, stage)
        with moved(block, self._device), in_float32(block):
            if todo:
                targets = list(hidden.chain.each(lambda run: run(), hidden.runs(stage)))
                statistics = self._statistics(layers, stage, hidden)
                for unit, choices in todo.items():
                    own = losses[unit.match] = {}
                    for choice in choices:
                        with self._compressed(unit, layers, self._plans[choice], statistics):
                            own[choice] = _mean_error(hidden, stage, targets)
                        counter.advance()
            hidden.hand_on(stage)
        return losses

    def _statistics(
        self, layers: Mapping[str, nn.Linear], stage: str, hidden: HiddenStates
    ) -> dict[str, InputStatistics]:
        if not self._calibrated:
            return {}
        hessian = any(plan.needs_hessian for plan in self._plans.values())
        return statistics_of(layers, hidden.runs(stage), hessian, each=hidden.chain.each)

    @contextmanager
    def _compressed(
        self,
        unit: Unit,
        layers: Mapping[str, nn.Linear],
        plan: WeightPlan,
        statistics: Mapping[str, InputStatistics],
    ) -> Iterator[None]:
        """The unit's layers have compressed weights meanwhile."""
        own = {name: layers[name] for name in unit.layers}
        known = sufficient(self._model, own, {n: statistics[n] for n in own if n in statistics}, lambda _: plan)
        originals = {name: layer.weight.data for name, layer in own.items()}
        try:
            for name, layer in own.items():
                blind = self._calibrated and name not in known
                used = without_statistics(plan) if blind else plan
                compressed = compress_named(name, originals[name], used, known.get(name))
                layer.weight.data = decompress_weight(compressed, plan.format)
            yield
        finally:
            for name, layer in own.items():
                layer.weight.data = originals[name]


class _Counter:
    """Tells `progress` of each candidate that is done."""

    def __init__(self, total: int, progress: Callable[[Progress], None]) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._show()

    def advance(self) -> None:
        self._done += 1
        self._show()

    def _show(self) -> None:
        self._progress(Progress(self._done, self._total, None, "measuring layers"))


def _mean_error(hidden: HiddenStates, stage: str, targets: Sequence[Tensor]) -> float:
    """Of the block as it is now, over all windows."""
    pairs = zip(hidden.runs(stage), targets, strict=True)
    errors: Iterator[float] = hidden.chain.each(lambda pair: float(relative_error(pair[0](), pair[1])), pairs)
    return math.fsum(errors) / len(targets)
