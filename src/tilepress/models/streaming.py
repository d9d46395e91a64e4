"""A transformers model without its weights, and the weights put into a part of it at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .blocks import find_blocks, stage_state
from .checkpoint_checks import NOTHING, Allowed, places, refuse_unused
from .config_limits import build, check_described
from .embedded import ModelUnavailableError
from .joins import find_joins
from .linear_form import Part, replace_layer, to_linear_form
from .loading import Announce, read_config, say
from .quantized import QuantizedShards, SourceWeight
from .registration import packed_modules
from .shard_files import WIDTHS
from .shards import Shards
from .storage import Layer, MemoryStorage


class StreamedModel:
    """`model` has its buffers but no weights; `fetch` fills some from the folder's files, `release` empties them.

    It is in linear form (see `linear_form`) where it is `complete`."""

    def __init__(self, folder: Path, shards: Shards, allowed: Allowed = NOTHING, announce: Announce = say) -> None:
        self._shards = shards
        config = read_config(folder, allowed, dequantised=isinstance(shards, QuantizedShards), any_head=True)
        trust = allowed.trust_remote_code
        check_described(folder, config, shards, trust, any_head=True)
        with _parameters_on_meta():
            self.model: Any = build(config, trust, any_head=True).eval()
        self._joins = find_joins(self.model, shards)
        joined = {name for join in self._joins.values() for names in join.sources.values() for name in names}
        plain = (name for name in shards if name not in joined)
        self._stored = {place: name for name, place in places(self.model, plain, streamed=True).items()}
        self._check_shapes(folder)
        self.complete, self._parts = self._is_complete(), dict[str, Part]()
        if self.complete:
            refuse_unused(folder, self.model, shards, allowed, announce)
            self._parts = to_linear_form(self.model)

    def source_weight(self, layer: str) -> SourceWeight | None:
        """The layer's weight as another tool quantised it, if one did."""
        if not isinstance(self._shards, QuantizedShards):
            return None
        part = self._parts.get(f"{layer}.weight", Part(f"{layer}.weight"))
        return self._shards.source_weight(self._stored.get(part.key, ""), part.index)

    @property
    def has_foreign_layers(self) -> bool:
        """Whether some layers are made of what the files have by more than taking one expert of many: what is quantised
        there is not the layer's own weight."""
        weights = [part for name, part in self._parts.items() if name.endswith(".weight")]
        return any(part.index is None or not self._is_quantised(part) for part in weights)

    def quantised_layers(self) -> frozenset[str]:
        """Those that another tool quantised, by their names in the model."""
        plain = {name: Part(name) for name in self._stored if name.endswith(".weight")}
        weights = [name for name, part in (plain | self._parts).items() if self._is_quantised(part)]
        return frozenset(name.removesuffix(".weight") for name in weights if name.endswith(".weight"))

    def _is_quantised(self, part: Part) -> bool:
        """Whether another tool quantised it; experts' weights are transposed where they are fused."""
        if not isinstance(self._shards, QuantizedShards) or part.transposed != (part.index is not None):
            return False
        return self._stored.get(part.key) in self._shards.quantised

    def _is_complete(self) -> bool:
        """Whether the files hold each of the model's tensors as it is, if under another name, and those that it shares
        are the same where the files have both."""
        shared = self.model.all_tied_weights_keys
        if self.model.state_dict().keys() - self._stored.keys() - self._joins.keys() - shared.keys():
            return False
        pairs = [pair for pair in shared.items() if self._stored.keys() >= set(pair)]
        return all(_same(*(self._shards[self._stored[name]] for name in pair)) for pair in pairs)

    def _check_shapes(self, folder: Path) -> None:
        for name, tensor in self.model.state_dict().items():
            join = self._joins.get(name)
            if join is not None and join.merges_experts and join.experts != len(tensor):
                raise ModelUnavailableError(
                    f"the files of {folder} have {join.experts} experts for {name}, and its config.json says "
                    f"{len(tensor)}: fetch or save the model again"
                )
            stored = self._shards.shapes.get(self._stored.get(name, ""), tuple(tensor.shape))
            if stored != tuple(tensor.shape):
                raise ModelUnavailableError(
                    f"{name} is {list(stored)} in the files of {folder} and {list(tensor.shape)} by its config.json: "
                    "fetch or save the model again"
                )

    def fetch(self, keys: Iterable[str]) -> None:
        """Fill the parameters and buffers `keys`; those that are full stay as they are."""
        for key in keys:
            if self.model.get_parameter_or_buffer(key).is_meta:
                _set(self.model, key, self._read(key))
        self.model.tie_weights()

    def weight(self, layer: str) -> Tensor:
        """The weight of a layer, as stored."""
        return self._read(f"{layer}.weight")

    def _read(self, key: str) -> Tensor:
        """The tensor called `key` in the model as it is now."""
        part = self._parts.get(key)
        place = key if part is None else part.key
        if place in self._joins:
            value = self._joins[place].read(self._shards, self.model, part)
        elif part is None:
            value = self._shards[self._stored[place]]
        else:
            value = Part(place, transposed=part.transposed).of(self._shards.part(self._stored[place], part.index))
        expected = self.model.get_parameter_or_buffer(key).shape
        if value.shape != expected:
            raise ModelUnavailableError(
                f"{key} is {list(value.shape)} as the files have it and {list(expected)} by config.json: fetch or save "
                "the model again"
            )
        return value

    def itemsize(self, key: str) -> int:
        """Bytes of a number of the tensor called `key` as `fetch` gives it; nothing is read."""
        tensor, part = self.model.get_parameter_or_buffer(key), self._parts.get(key, Part(key))
        if not tensor.is_meta or part.key not in self._stored:
            size: int = tensor.element_size()
            return size
        if self._is_quantised(Part(part.key)):
            return torch.float32.itemsize
        return WIDTHS.get(self._shards.stored[self._stored[part.key]].type, 1)

    def release(self, keys: Iterable[str]) -> None:
        for key in keys:
            _set(self.model, key, self.model.get_parameter_or_buffer(key).to("meta"))


class StreamedStorage(MemoryStorage):
    """For a model that is only read: its stages come from `source`, where there is one, and nothing is kept of them."""

    def __init__(self, model: nn.Module, source: StreamedModel | None) -> None:
        super().__init__()
        self._model, self._source, self._blocks = model, source, list(find_blocks(model))

    def fetch(self, stage: str) -> None:
        if self._source is not None:
            self._source.fetch(stage_state(self._model, stage, self._blocks))

    def release(self, stage: str) -> None:
        release_stage(self._model, self._source, stage, self._blocks)

    def itemsize(self, key: str) -> int:
        """Bytes of a number of the tensor called `key`, before it is fetched."""
        size: int = self._model.state_dict()[key].element_size() if self._source is None else self._source.itemsize(key)
        return size

    def finish(self, stage: str, layers: list[Layer]) -> None:
        super().finish(stage, layers)
        self.release(stage)


def release_stage(model: nn.Module, source: StreamedModel | None, stage: str, blocks: Iterable[str]) -> None:
    """Empty what `source` has filled, and take all packed layers away."""
    if source is None:
        return
    packed = [name for name, _ in packed_modules(model)]
    source.release(stage_state(model, stage, blocks))
    for name in packed:
        replace_layer(model, name, nn.Identity())


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def _set(module: nn.Module, key: str, value: Tensor) -> None:
    path, _, name = key.rpartition(".")
    owner = module.get_submodule(path)
    if name in owner._buffers:
        owner._buffers[name] = value
    else:
        owner._parameters[name] = nn.Parameter(value, requires_grad=False)


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Modules made meanwhile have no memory for their parameters; their buffers are computed as ever."""
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, param: Any) -> None:
        known = param is None or param.is_meta  # a weight that two modules share stays one
        register(module, name, param if known else nn.Parameter(param.to("meta"), requires_grad=False))

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign, assignment]
    try:
        with torch.no_grad():
            yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
