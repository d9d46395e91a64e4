"""A worker's part in the compression of a model: the calibration windows that it has, and the layers that it owns."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..compression import CompressedWeight, InputStatistics
from ..compression.weight import decompress_weight
from ..models.blocks import linear_layers
from ..models.calibration import State, in_float32
from ..models.checkpoint_checks import Allowed
from ..models.compress import Compression
from ..models.compress_to_folder import open_model
from ..models.layer_inputs import add_input, paired_inputs, shared_inputs, turns
from ..models.loading import model_folder
from ..models.quantized import open_checkpoint
from ..models.recipe import Recipe
from ..models.routing import routed_layers, sufficient
from ..models.shards import Shards
from ..models.storage import Layer, Stream
from ..models.streaming import StreamedStorage
from ..tiles import PackedMatrix
from .batch import ClusterError

Given = tuple[Tensor, list[State]]  # what a block is given for some windows
Shared = list[tuple[str, int]]  # `layer_inputs.shared_inputs`


@dataclass(frozen=True)
class Job:
    """What is compressed, and how. `contents`: see `contents_of`."""

    name: str
    contents: list[tuple[str, str]]
    allowed: Allowed
    recipe: dict[str, Any]


@dataclass(frozen=True)
class Packed:
    """A layer that is compressed. `weight`: where other layers are given what it gives before the block is done."""

    matrix: PackedMatrix
    layer: Layer
    weight: CompressedWeight | None


def open_member(job: Job, windows: Tensor | None) -> "Member":
    """ClusterError where the model of that name is another one on this machine."""
    folder = model_folder(job.name, _hush, trust_remote_code=job.allowed.trust_remote_code)
    shards = open_checkpoint(folder)
    if contents_of(shards) != job.contents:
        raise ClusterError(f"{job.name} is another model there: all machines need the same files")
    model, source = open_model(folder, shards, job.allowed, _hush)
    return Member(model, Recipe.model_validate(job.recipe), windows, _Storage(model, source))


def contents_of(shards: Shards) -> list[tuple[str, str]]:
    """Of each file its name with its size, and its table of contents: a copy has another time."""
    facts = (one.rsplit(" ", 2) for one in shards.fingerprint())
    return [(file, table) for file, _, table in facts]


class _Storage(StreamedStorage):
    """Inputs of blocks come from elsewhere."""

    def finished(self, stage: str) -> list[Layer]:
        return []


class Member(Compression):
    """Memory: a block in float32; of its windows the hidden states and, while statistics are summed, the inputs of the
    block's layers; and the statistics of one layer, twice, while it is compressed."""

    def __init__(self, model: nn.Module, recipe: Recipe, windows: Tensor | None, storage: _Storage) -> None:
        super().__init__(model, recipe, windows, storage)
        if self.windows is not None:
            self.hidden_states = self._begin_hidden_states(self.windows)
        self._wide = ExitStack()
        self._inputs: dict[str, list[tuple[Tensor, Tensor | None]]] = {}

    def begin(self, stage: str, folded: Mapping[str, Tensor], given: Mapping[Stream, Given]) -> Given | None:
        """Make the block ready; what it gives in the dense stream, where there is one.

        folded: parameters that smoothing has changed. given: where an earlier call has not left it here.
        """
        self.storage.fetch(stage)
        block, hidden = self.blocks[stage], self.hidden_states
        self._layers = linear_layers(block, stage)
        self._types = {name: layer.weight.dtype for name, layer in self._layers.items()}
        self._wide.enter_context(in_float32(block))
        dense = None
        for stream, states in given.items():
            self._put(stage, stream, states)
        if hidden is not None and "dense" in hidden.streams:
            hidden.hand_on(stage, "dense")
            dense = self._given(hidden.following(stage), "dense")
        for name, value in folded.items():
            self.model.get_parameter(name).data = value
        if self.recipe.needs_drift:
            self._dense = deepcopy(block)
        return dense

    def turns(self, stage: str) -> list[list[str]]:
        """See `layer_inputs.turns`."""
        assert self.hidden_states is not None
        return turns(self._layers, self.hidden_states.run(stage, 0), routed_layers(self.model))

    def gather(self, stage: str, names: Sequence[str]) -> list[Shared]:
        """Keep what these layers are given on each window; which of them are given the same."""
        hidden, drift = self.hidden_states, self.recipe.needs_drift
        assert hidden is not None
        layers, others = {name: self._layers[name] for name in names}, {}
        pairs: Any = ((run, None) for run in hidden.runs(stage))
        if drift:
            dense_layers = linear_layers(self._dense, stage)
            others = {name: dense_layers[name] for name in names}
            pairs = zip(hidden.runs(stage), hidden.runs(stage, "dense", self._dense), strict=True)
        shared = []
        for inputs in paired_inputs(layers, pairs, dense_layers=others, each=hidden.chain.each):
            shared.append(shared_inputs(inputs))
            for name, x, dense in inputs:
                self._inputs.setdefault(name, []).append((x, dense))
        return shared

    def add(self, name: str, rows: slice, piece: InputStatistics | None) -> InputStatistics:
        """A piece of a layer's statistics, of the windows before those here, with those here."""
        if piece is None:
            inputs, needs = self._layers[name].in_features, self.recipe
            piece = InputStatistics(inputs, needs.needs_hessian, drift=needs.needs_drift, rows=rows)
        for x, dense in self._inputs[name]:
            add_input(piece, name, x, dense)
        return piece

    def compress(self, name: str, *pieces: InputStatistics) -> Packed:
        """A layer, with the pieces of its statistics of all windows."""
        self._inputs.clear()
        layer, seen = self._layers[name], {name: InputStatistics.joined(pieces)} if pieces else {}
        known = sufficient(self.model, {name: layer}, seen, self.recipe.plan).get(name)
        weight = self._compressed(name, layer.weight.detach(), known)
        return Packed(*self.pack_layer(name, layer, known, weight), weight if self.recipe.needs_drift else None)

    def take(self, *packed: Packed) -> None:
        """Layers give from now on what they will give when they are packed."""
        for one in packed:
            assert one.weight is not None
            name = one.layer.name
            self._layers[name].weight.data = decompress_weight(one.weight, self.recipe.plan(name).format)

    def hand_on(self, stage: str, *packed: Packed) -> Given | None:
        """End the block; what it gives, packed, which stays here for the next one, too."""
        given = None
        self._layers.clear()
        for one in packed:
            self.put_packed(one.layer.name, self._types[one.layer.name], one.matrix, one.layer)
        if self.hidden_states is not None:
            self.hidden_states.hand_on(stage)
            given = self._given(self.hidden_states.following(stage), "compressed")
        self._wide.close()
        self.storage.finish(stage, [])
        return given

    def _given(self, stage: str, stream: Stream) -> Given:
        assert self.windows is not None and self.hidden_states is not None
        return self.hidden_states.given(stage, stream, slice(0, len(self.windows)))

    def _put(self, stage: str, stream: Stream, given: Given) -> None:
        assert self.windows is not None and self.hidden_states is not None
        self.hidden_states.put(stage, stream, slice(0, len(self.windows)), given)


def _hush(_: str) -> None:
    pass
