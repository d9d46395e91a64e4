"""A model compressed block by block: each block is calibrated with what the compressed blocks before it give."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from ..compression import InputStatistics, WeightPlan, compress_weight
from ..compression.search import Step
from ..compression.threads import one_thread
from ..formats.kv import parse_kv
from ..nn import PackedLinear
from ..tiles import pack_codes
from .blocks import REST, Dense, dense_layers, find_blocks, linear_layers, output_layer
from .calibration import in_float32, run_around, statistics_of, token_windows
from .checksums import SUMS
from .hidden_states import HiddenStates
from .precision import Evaluations, Judge, Precision, find_precision
from .recipe import Recipe, read_recipe
from .registration import TilepressConfig, attach, check_cache_of, packed_layers, replace_layer, unpack_layers
from .smoothing import SEQUENCES, check_smoothing, smooth_block
from .storage import Layer, MemoryStorage, Storage
from .tensor_types import classify, layer_activations, products
from .texts import calibration_text


@dataclass(frozen=True)
class Progress:
    """`done` of `total` stages (blocks, and the rest); `seconds_left` is None before the first is done."""

    done: int
    total: int
    seconds_left: float | None


def compress_model(
    model: nn.Module,
    recipe: Recipe | Mapping[str, Any] | str | Path,
    *,
    tokenizer: Any = None,
    windows: Tensor | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> nn.Module:
    """Put packed layers in the place of `model`'s linear layers, in place, as the recipe says; returns the model.

    Where Anda's mantissas are to be searched for (`anda:1%`), that is done on the calibration text, last of all.

    Args:
        model: any module tree with `nn.Linear` on the CPU; one of transformers' can then be saved by `save_pretrained`.
        recipe: a Recipe, nested mappings like it, or the path of a TOML file.
        tokenizer: makes tokens of the recipe's calibration text, where the recipe's methods look at inputs.
        windows: instead of a tokenizer: inputs of the model, [sequences, length] of tokens for a language model.
    """
    recipe = read_recipe(recipe)
    if recipe.looks_at_text and windows is None:
        windows = read_windows(recipe, tokenizer)
    compression = Compression(model, recipe, windows, MemoryStorage())
    layers = compression.run(progress)
    if recipe.activations.search is not None:
        assert windows is not None
        recipe, _ = choose_mantissas(unpack_layers(deepcopy(model)).float(), recipe, windows, Evaluations())
        layers = with_activations_of(model, layers, recipe)
        for layer in layers:
            packed = model.get_submodule(layer.name)
            assert isinstance(packed, PackedLinear)
            packed.set_activations(layer.activations)
    if hasattr(model, "config"):
        attach(model, describe(layers, recipe, compression.dense))
    return model


def read_windows(recipe: Recipe, tokenizer: Any, text: str | None = None) -> Tensor:
    """[sequences, length] tokens of the recipe's calibration text."""
    if tokenizer is None:
        raise ValueError(
            f"{recipe.looking} looks at calibration inputs: give a tokenizer for the recipe's text, or windows of "
            "tokens"
        )
    calibration = recipe.calibration
    text = calibration_text(calibration.text)[1] if text is None else text
    tokens = torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    return token_windows(tokens, calibration.sequences, calibration.length, calibration.seed)


def choose_mantissas(
    model: nn.Module,
    recipe: Recipe,
    windows: Tensor,
    evaluations: Evaluations,
    track: Callable[[Step], None] = lambda _: None,
) -> tuple[Recipe, Precision]:
    """Find the mantissas that the recipe leaves open, on the packed model's weights in ordinary layers (see
    `study_model.load_study_model` for why): the recipe with them, and the search's result."""
    request = recipe.activations.search
    assert request is not None
    types = classify(model, recipe.activations.types)
    precision = find_precision(
        Judge(model, types, windows, request.group, evaluations), products(model, types), request, track=track
    )
    activations = recipe.activations.model_copy(update={"format": str(precision.format)})
    return recipe.model_copy(update={"activations": activations}), precision


def with_activations_of(model: nn.Module, layers: list[Layer], recipe: Recipe) -> list[Layer]:
    """`layers` with the activations that the recipe has for them."""
    activations = layer_activations(model, recipe.activations.format, recipe.activations.types)
    return [replace(layer, activations=activations[layer.name]) for layer in layers]


def describe(
    layers: list[Layer], recipe: Recipe, dense: Sequence[Dense] = (), source: str | None = None
) -> TilepressConfig:
    import transformers

    versions = {"tilepress": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    keys = ("format", "density", "error", "activations", "streams")
    described = {layer.name: {key: getattr(layer, key) for key in keys} for layer in layers}
    reasons, stated = {layer.name: layer.why for layer in dense}, recipe.model_dump(mode="json")
    return TilepressConfig(described, stated, versions, source=source, dense=reasons, checksums=SUMS)


class Compression:
    """One model, one recipe, stage after stage. `dense`: the layers that stay as they are."""

    def __init__(self, model: nn.Module, recipe: Recipe, windows: Tensor | None, storage: Storage) -> None:
        self.dense = _left_dense(model, recipe)
        if windows is not None:
            _refuse_length(model, windows)
        check_cache_of(model, recipe.model_dump())
        if recipe.folds_scales:
            check_smoothing(model)
        self.model, self.recipe, self.storage = model, recipe, storage
        self.windows = windows if recipe.needs_calibration else None
        self.blocks = find_blocks(model)
        self.output = output_layer(model)
        self.activations = layer_activations(model, recipe.activations.format, recipe.activations.types)
        self.hidden_states: HiddenStates | None = None

    @property
    def stages(self) -> list[str]:
        return [*self.blocks, REST]

    def run(self, progress: Callable[[Progress], None] = lambda _: None) -> list[Layer]:
        """All layers packed, in order."""
        layers: list[Layer] = []
        start, fresh = time.monotonic(), 0
        self.storage.fetch(REST)
        progress(Progress(0, len(self.stages), None))
        for done, stage in enumerate(self.stages, 1):
            packed = self.storage.finished(stage)
            if packed is None:
                packed, fresh = self._compress_stage(stage), fresh + 1
            layers += packed
            left = (time.monotonic() - start) / fresh * (len(self.stages) - done) if fresh else None
            progress(Progress(done, len(self.stages), left))
        return layers

    def _compress_stage(self, stage: str) -> list[Layer]:
        with one_thread():  # the same bytes on every machine of a kind, however many cores it has
            if self.windows is not None and self.blocks and self.hidden_states is None:
                dense = self.recipe.needs_dense_stream
                self.hidden_states = HiddenStates(self.model, self.blocks, self.windows, self.storage, dense=dense)
            layers = self._compress_rest() if stage == REST else self._compress_block(stage)
        self.storage.finish(stage, layers)
        return layers

    def _compress_block(self, stage: str) -> list[Layer]:
        self.storage.fetch(stage)
        block, layers = self.blocks[stage], linear_layers(self.blocks[stage], stage)
        types = {name: layer.weight.dtype for name, layer in layers.items()}
        hidden = self.hidden_states
        if hidden is None:
            return self._pack(layers, types, {})
        with torch.no_grad(), in_float32(block):
            if "dense" in hidden.streams:
                hidden.hand_on(stage, "dense")
            if self.recipe.folds_scales:
                self._smooth(stage, hidden)
            runs = hidden.runs(stage)
            statistics = statistics_of(layers, runs, self.recipe.needs_hessian, each=hidden.chain.each)
            packed = self._pack(layers, types, statistics)
            hidden.hand_on(stage)
        return packed

    def _smooth(self, stage: str, hidden: HiddenStates) -> None:
        runs, cache = list(islice(hidden.runs(stage), SEQUENCES)), self.recipe.kv_cache
        smooth_block(self.model, stage, runs, parse_kv(cache.format), cache.smoothing)

    def _compress_rest(self) -> list[Layer]:
        inside = tuple(f"{name}." for name in self.blocks)
        layers = {name: layer for name, layer in linear_layers(self.model).items() if not name.startswith(inside)}
        if self.recipe.weights.lm_head == "keep" and self.output is not None:
            layers.pop(self.output, None)
        types = {name: layer.weight.dtype for name, layer in layers.items()}
        statistics: dict[str, InputStatistics] = {}
        if self.windows is not None and layers:
            runs = self._rest_runs(self.windows)  # which put forwards into the model's own modules
            statistics = statistics_of(layers, runs, self.recipe.needs_hessian, each=map)
        if self.output in layers:
            _untie(self.model)
        return self._pack(layers, types, statistics)

    def _rest_runs(self, windows: Tensor) -> Iterable[Callable[[], None]]:
        output = None if self.output is None else self.model.get_submodule(self.output)
        if self.hidden_states is not None:
            return self.hidden_states.runs_around(output)
        return (partial(run_around, self.model, None, output, window, None) for window in windows)

    def _pack(
        self, layers: dict[str, nn.Linear], types: Mapping[str, torch.dtype], statistics: dict[str, InputStatistics]
    ) -> list[Layer]:
        """Empties `layers` and `statistics` on the way: a layer that is packed is not held in memory any more."""
        results = []
        for name, dtype in types.items():
            packed, result = pack_layer(
                name, layers.pop(name), dtype, self.recipe, self.activations[name], statistics.pop(name, None)
            )
            replace_layer(self.model, name, packed)
            results.append(result)
        return results


def pack_layer(
    name: str,
    layer: nn.Linear,
    dtype: torch.dtype,
    recipe: Recipe,
    activations: str,
    statistics: InputStatistics | None,
) -> tuple[PackedLinear, Layer]:
    """The packed layer, its bias of type `dtype`, and what became of it."""
    plan = recipe.plan(name)
    if statistics is None and recipe.needs_calibration:
        plan = _blind(plan)
    try:
        weight = compress_weight(layer.weight.detach(), plan, statistics)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    matrix = pack_codes(weight.quantized, plan.format, mask=weight.mask)
    bias = None if layer.bias is None else layer.bias.to(dtype)
    packed = PackedLinear(matrix, bias, activations)
    streams = {stream: str(array.dtype).removeprefix("torch.") for stream, array in matrix.streams.items()}
    size = matrix.shape, matrix.nbytes, matrix.bits_per_weight
    return packed, Layer(name, str(plan.format), matrix.density, weight.error, *size, activations, streams)


def _blind(plan: WeightPlan) -> WeightPlan:
    """For a layer that no calibration input reaches, an expert that is never chosen, say: what needs none."""
    return replace(plan, prune="magnitude", quantize="rtn")


def _untie(model: Any) -> None:
    """The output layer gets weights of its own; the embedding keeps what both had."""
    model.config.tie_word_embeddings = False
    model.all_tied_weights_keys = {}


def _left_dense(model: nn.Module, recipe: Recipe) -> list[Dense]:
    """The layers that `recipe` leaves as they are; ValueError where it cannot be followed."""
    if any(True for _ in packed_layers(model)):
        raise ValueError("the model is compressed already: compress the one it was made from")
    dense_output = output_layer(model) if recipe.weights.lm_head == "keep" else None
    packed = linear_layers(model).keys() - {dense_output}
    if not packed:
        unsupported = sorted({type(module).__name__ for module in model.modules() if "Conv1D" in type(module).__name__})
        hint = f"; its {', '.join(unsupported)} layers, as in GPT-2, are not supported" if unsupported else ""
        but = f" but {dense_output}, which lm_head keep leaves as it is" if dense_output in linear_layers(model) else ""
        raise ValueError(f"{type(model).__name__} has no nn.Linear layer{but}, so there is nothing to compress{hint}")
    recipe.check_overrides(packed, dense_output)
    return dense_layers(model, packed, dense_output)


def _refuse_length(model: Any, windows: Tensor) -> None:
    limit, length = getattr(getattr(model, "config", None), "max_position_embeddings", None), windows.shape[1]
    if limit and length > limit:
        raise ValueError(
            f"the model takes {limit} tokens at once, and calibration.length is {length}: give {limit} or less"
        )
