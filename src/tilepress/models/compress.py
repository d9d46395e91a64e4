"""A model compressed block by block: each block is calibrated with what the compressed blocks before it give."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from ..compression import CompressedWeight, InputStatistics, WeightPlan
from ..compression.threads import one_by_one, one_thread
from ..compression.weight import decompress_weight, measured
from ..formats.kv import parse_kv
from ..nn import PackedLinear
from ..nn.emulation import round_inputs, roundings
from ..tiles import PackedMatrix
from .beginning import beginning
from .blocks import REST, find_blocks, is_tied, linear_layers, output_layer, packable_embedding
from .calibration import in_float32, run_around, token_windows
from .checksums import SUMS
from .device import CPU, find_device, moved
from .heal import heal
from .hidden_states import HiddenStates
from .layer import compress_named, pack_weight
from .layer_inputs import statistics_of, turns
from .left_dense import Dense, left_dense
from .linear_form import replace_layer, to_linear_form, undone_on_error
from .loading import Announce, say
from .mantissas import choose_mantissas, with_activations_of
from .precision import Evaluations
from .recipe import KEEP, Recipe, read_recipe
from .reconstruct import RATE, reconstruct, trainable_vectors
from .registration import TilepressConfig, attach, check_cache_of, pack_embedding, unpack_layers
from .routing import routed_layers, sufficient, without_statistics
from .share import share_of
from .smoothing import SEQUENCES, check_smoothing, smooth_block
from .source_format import sample_layer, with_source_format
from .storage import Layer, MemoryStorage, Progress, Storage, Stream
from .tensor_types import layer_activations
from .texts import calibration_text
from .training import Trainable, Training


def compress_model(
    model: nn.Module,
    recipe: Recipe | Mapping[str, Any] | str | Path,
    *,
    tokenizer: Any = None,
    windows: Tensor | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    device: str = "cpu",
    announce: Announce = say,
) -> nn.Module:
    """Put packed layers in the place of `model`'s linear layers, in place, as the recipe says; returns the model.

    A recipe that names no format of weights takes the one they came in, if that is one of 4 bits that `source_format`
    knows. Where Anda's mantissas are to be searched for (`anda:1%`), that is done on the calibration text, last of all.

    Args:
        model: any module tree with `nn.Linear` on the CPU, where it stays; one of transformers' can then be saved by
            `save_pretrained`.
        recipe: a Recipe, nested mappings like it, or the path of a TOML file.
        tokenizer: makes tokens of the recipe's calibration text, where the recipe's methods look at inputs.
        windows: instead of a tokenizer: inputs of the model, [sequences, length] of tokens for a language model.
        device: what computes meanwhile, a block at a time: cpu, or cuda. Bits differ from one to another.
        announce: is told how many parameters were packed; if not given, it goes to standard error.
    """
    recipe, sample, place = read_recipe(recipe), sample_layer(model), find_device(device)
    if sample is not None:
        weight = model.get_submodule(sample).get_parameter("weight").detach()
        recipe = with_source_format(recipe, weight, lambda _: None)
    if recipe.looks_at_text and windows is None:
        windows = read_windows(recipe, tokenizer)
    dense = deepcopy(model) if recipe.weights.heal else None
    compression = Compression(model, recipe, windows, MemoryStorage(), place)
    layers = compression.run(progress)
    if dense is not None:
        assert windows is not None
        steps, seed = recipe.weights.heal, recipe.calibration.seed
        heal(model, dense, windows, steps, seed, device=place, progress=progress)
    announce(f"{'warning: ' if compression.share.is_low else ''}{compression.share}")
    if recipe.activations.search is not None:
        assert windows is not None
        recipe, _ = choose_mantissas(unpack_layers(deepcopy(model)).float().to(place), recipe, windows, Evaluations())
        layers = with_activations_of(model, layers, recipe)
        for layer in layers:
            packed = model.get_submodule(layer.name)
            if isinstance(packed, PackedLinear):
                packed.set_activations(layer.activations)
    if hasattr(model, "config"):
        attach(model, describe(layers, recipe, compression.dense, share=compression.share))
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
    begin = beginning(tokenizer)
    return token_windows(tokens, calibration.sequences, calibration.length, calibration.seed, begin)


def describe(
    layers: list[Layer], recipe: Recipe, dense: Sequence[Dense] = (), source: str | None = None, share: Any = None,
    **more: Any,
) -> TilepressConfig:  # fmt: skip
    """`more`: `calibration` and `origin`, where they are known."""
    import transformers

    versions = {"tilepress": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    keys = ("format", "density", "error", "activations", "streams")
    described: dict[str, dict[str, Any]] = {
        layer.name: {key: getattr(layer, key) for key in keys} | ({"tied": layer.tied} if layer.tied else {})
        for layer in layers
    }
    reasons, stated = {layer.name: layer.why for layer in dense}, recipe.model_dump(mode="json")
    blind = [layer.name for layer in layers if not layer.calibrated]
    rest: dict[str, Any] = {"dense": reasons, "parameters": share and share.counts, "uncalibrated": blind}
    return TilepressConfig(described, stated, versions, source=source, checksums=SUMS, **rest, **more)


class Compression:
    """One model, one recipe, stage after stage. `dense`: the layers that stay as they are. `tied`: the output layer,
    where it takes the embedding's matrix. `device`: where blocks are computed. `unties`: whether transformers must not
    tie the result's weights."""

    def __init__(
        self, model: nn.Module, recipe: Recipe, windows: Tensor | None, storage: Storage, device: torch.device = CPU
    ) -> None:
        with undone_on_error(model):
            to_linear_form(model)
            self.dense = left_dense(model, recipe)
            self.share = share_of(model, recipe, self.dense)
            if windows is not None:
                _refuse_length(model, windows)
            check_cache_of(model, recipe.model_dump())
            if recipe.folds_scales:
                check_smoothing(model)
        self.tied = output_layer(model) if recipe.ties(is_tied(model)) else None
        self.packs_embedding = recipe.plan_of_embedding is not None and packable_embedding(model) is not None
        self.unties = self.packs_embedding or recipe.weights.lm_head != KEEP
        self.model, self.recipe, self.storage, self.device = model, recipe, storage, device
        self.windows = windows if recipe.needs_calibration else None
        self._statistics = partial(statistics_of, hessian=recipe.needs_hessian, drift=recipe.needs_drift)
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
        # One thread: the same bytes on every machine of a kind, however many cores it has.
        inference = torch.is_inference_mode_enabled() and not self.recipe.weights.reconstruct
        alone = nullcontext() if self.device == CPU else one_by_one()
        with torch.inference_mode(inference), torch.no_grad(), one_thread(), alone:
            if self.windows is not None and self.blocks and self.hidden_states is None:
                self.hidden_states = self._begin_hidden_states(self.windows)
            if stage == REST:
                self.storage.fetch(REST)
            layers = self._compress_rest() if stage == REST else self._compress_block(stage)
        self.storage.finish(stage, layers)
        return layers

    def _begin_hidden_states(self, windows: Tensor) -> HiddenStates:
        """The embedding and the output layer, which may be larger than a block, are in memory for that alone."""
        dense = self.recipe.needs_dense_stream
        self.storage.fetch(REST)
        states = HiddenStates(self.model, self.blocks, windows, self.storage, dense=dense, device=self.device)
        if not states.chain.varies:
            self.storage.release(REST)
        return states

    def _compress_block(self, stage: str) -> list[Layer]:
        self.storage.fetch(stage)
        block, layers = self.blocks[stage], linear_layers(self.blocks[stage], stage)
        types = {name: layer.weight.dtype for name, layer in layers.items()}
        hidden = self.hidden_states
        if hidden is None:
            return self._pack(layers, types, {}, {})
        stored = {name: one.dtype for name, one in block.named_parameters()}
        with torch.no_grad(), moved(block, self.device), in_float32(block):
            if "dense" in hidden.streams:
                hidden.hand_on(stage, "dense")
            if self.recipe.folds_scales:
                self._smooth(stage, hidden)
            originals = {name: layer.weight.detach() for name, layer in layers.items()}
            if self.recipe.needs_drift:
                weights, statistics = self._compress_in_turn(stage, layers)
            else:
                seen = self._statistics(layers, hidden.runs(stage), each=hidden.chain.each)
                weights, statistics = {}, sufficient(self.model, layers, seen, self.recipe.plan)
            if self.recipe.weights.reconstruct:
                weights = self._reconstructed(stage, layers, originals, statistics, stored, weights)
            originals.clear()
            if self.device != CPU:
                self._hand_on_unpacked(stage, layers, statistics, weights)
            packed = self._pack(layers, types, statistics, weights)
            if self.device == CPU:
                hidden.hand_on(stage)
        return packed

    def _compress_in_turn(
        self, stage: str, layers: Mapping[str, nn.Linear]
    ) -> tuple[dict[str, CompressedWeight], dict[str, InputStatistics]]:
        """The block's layers compressed in the order in which they run, with their statistics: each is given what those
        before it give by then, or it would make up once more for what they have made up for."""
        hidden, dense = self.hidden_states, deepcopy(self.blocks[stage])
        assert hidden is not None
        dense_layers = linear_layers(dense, stage)
        weights, statistics = dict[str, CompressedWeight](), dict[str, InputStatistics]()
        for names in turns(layers, hidden.run(stage, 0), routed_layers(self.model)):
            group, others = ({name: one[name] for name in names} for one in (layers, dense_layers))
            runs, dense_runs = hidden.runs(stage), hidden.runs(stage, "dense", dense)
            each = hidden.chain.each
            seen = self._statistics(group, runs, dense_runs=dense_runs, dense_layers=others, each=each)
            statistics |= sufficient(self.model, group, seen, self.recipe.plan)
            for name, layer in group.items():
                weights[name] = self._compressed(name, layer.weight.detach(), statistics.get(name))
                layer.weight.data = decompress_weight(weights[name], self.recipe.plan(name).format)
        return weights, statistics

    def _compressed(self, name: str, weight: Tensor, statistics: InputStatistics | None) -> CompressedWeight:
        return compress_named(name, weight, self._plan(name, statistics), statistics)

    def _hand_on_unpacked(
        self,
        stage: str,
        layers: Mapping[str, nn.Linear],
        statistics: Mapping[str, InputStatistics],
        weights: dict[str, CompressedWeight],
    ) -> None:
        """Hand on what the packed block will give, before its layers are packed: packed ones compute on the CPU alone.
        Compressed `weights` that are not there yet are put there."""
        assert self.hidden_states is not None
        for name, layer in layers.items():
            if name not in weights:
                weights[name] = self._compressed(name, layer.weight.detach(), statistics.get(name))
            layer.weight.data = decompress_weight(weights[name], self.recipe.plan(name).format)
        with round_inputs(self.model, roundings({name: self.activations[name] for name in layers})):
            self.hidden_states.hand_on(stage)

    def _smooth(self, stage: str, hidden: HiddenStates) -> None:
        runs, cache = list(islice(hidden.runs(stage), SEQUENCES)), self.recipe.kv_cache
        smooth_block(self.model, stage, runs, parse_kv(cache.format), cache.smoothing)

    def _compress_rest(self) -> list[Layer]:
        inside = tuple(f"{name}." for name in self.blocks)
        layers = {name: layer for name, layer in linear_layers(self.model).items() if not name.startswith(inside)}
        if self.output is not None and (self.tied or self.recipe.weights.lm_head == KEEP):
            layers.pop(self.output, None)
        types = {name: layer.weight.dtype for name, layer in layers.items()}
        statistics: dict[str, InputStatistics] = {}
        if self.windows is not None and layers:
            # Runs put forwards into the model's own modules, so that one comes after another.
            runs = self._rest_runs(self.windows)
            dense_runs = self._rest_runs(self.windows, "dense") if self.recipe.needs_drift else None
            statistics = self._statistics(layers, runs, dense_runs=dense_runs, each=map)
        if self.unties:
            untie(self.model)
        return [*self._pack(layers, types, statistics, {}), *self._pack_embedding()]

    def _pack_embedding(self) -> list[Layer]:
        table, plan = packable_embedding(self.model), self.recipe.plan_of_embedding
        if table is None or plan is None or not self.packs_embedding:
            return []
        name, weight = table[0], table[1].get_parameter("weight").detach()
        compressed = compress_named(name, weight.to(self.device), plan, None)
        matrix, layer = pack_weight(name, compressed, plan.format, "float")  # rounded inputs cost logits most
        pack_embedding(self.model, name, matrix, self.tied, layer.activations)
        return [replace(layer, tied=self.tied)]

    def _rest_runs(self, windows: Tensor, stream: Stream = "compressed") -> Iterable[Callable[[], None]]:
        output = None if self.output is None else self.model.get_submodule(self.output)
        if self.hidden_states is not None:
            return self.hidden_states.runs_around(output, stream)
        return (partial(run_around, self.model, None, output, window, None) for window in windows)

    def _reconstructed(
        self,
        stage: str,
        layers: Mapping[str, nn.Linear],
        originals: Mapping[str, Tensor],
        statistics: Mapping[str, InputStatistics],
        stored: Mapping[str, torch.dtype],
        weights: Mapping[str, CompressedWeight],
    ) -> dict[str, CompressedWeight]:
        """The block's layers trained together; their `originals` are compressed first where `weights` has none. Norms
        and biases, which are stored in types `stored`, are left as they were trained."""
        hidden, number, block = self.hidden_states, self.stages.index(stage), self.blocks[stage]
        assert hidden is not None
        formats = {name: self.recipe.plan(name).format for name in layers}
        missing = [name for name in layers if name not in weights]
        weights = dict(weights)
        weights |= {name: self._compressed(name, originals[name], statistics.get(name)) for name in missing}
        starts = {name: Trainable(layer, weights[name], formats[name]) for name, layer in layers.items()}
        training = Training(starts, trainable_vectors(block, stored), self.recipe.weights.reconstruct, RATE)
        targets, seed = hidden.outputs(stage, "dense"), self.recipe.calibration.seed + number
        with round_inputs(self.model, roundings({name: self.activations[name] for name in layers})):
            weights |= reconstruct(training, partial(hidden.run, stage), targets, seed).best
        return {
            name: measured(originals[name], weight, formats[name], statistics.get(name))
            for name, weight in weights.items()
        }

    def _pack(
        self,
        layers: dict[str, nn.Linear],
        types: Mapping[str, torch.dtype],
        statistics: dict[str, InputStatistics],
        weights: dict[str, CompressedWeight],
    ) -> list[Layer]:
        """Those that are not among the `weights` yet are compressed. Empties its arguments on the way: a layer that is
        packed is not held in memory any more."""
        results = []
        for name, dtype in types.items():
            layer, known = layers.pop(name), statistics.pop(name, None)
            matrix, result = self.pack_layer(name, layer, known, weights.pop(name, None))
            self.put_packed(name, dtype, matrix, result)
            results.append(result)
            del layer
        return results

    def pack_layer(
        self, name: str, layer: nn.Linear, known: InputStatistics | None, weight: CompressedWeight | None = None
    ) -> tuple[PackedMatrix, Layer]:
        """The layer packed; its weight is compressed if `weight` is not that already."""
        plan = self._plan(name, known)
        if weight is None:
            weight = compress_named(name, layer.weight.detach().to(self.device), plan, known)
        matrix, result = pack_weight(name, weight, plan.format, self.activations[name])
        is_blind = known is None and self.recipe.plan(name).needs_statistics
        return matrix, replace(result, calibrated=not is_blind)

    def put_packed(self, name: str, dtype: torch.dtype, matrix: PackedMatrix, result: Layer) -> None:
        """Put a packed layer in the place of the one called `name`, which was stored in `dtype`."""
        layer: Any = self.model.get_submodule(name)
        bias = None if layer.bias is None else layer.bias.to(CPU, dtype)
        replace_layer(self.model, name, PackedLinear(matrix, bias, result.activations))

    def _plan(self, name: str, statistics: InputStatistics | None) -> WeightPlan:
        plan = self.recipe.plan_of_output(name) if name == self.output else self.recipe.plan(name)
        return without_statistics(plan) if statistics is None and self.recipe.needs_calibration else plan


def untie(model: Any) -> None:
    """The output layer gets weights of its own; the embedding keeps what both had."""
    model.config.tie_word_embeddings = False
    model.all_tied_weights_keys = {}


def _refuse_length(model: Any, windows: Tensor) -> None:
    limit, length = getattr(getattr(model, "config", None), "max_position_embeddings", None), windows.shape[1]
    if limit and length > limit:
        raise ValueError(
            f"the model takes {limit} tokens at once, and calibration.length is {length}: give {limit} or less"
        )
