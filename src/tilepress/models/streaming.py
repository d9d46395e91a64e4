"""A transformers model without its weights, and the weights put into a part of it at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint_checks import NOTHING, Allowed, places, refuse_unused
from .config_limits import check_described
from .embedded import ModelUnavailableError
from .loading import Announce, read_config, say
from .quantized import QuantizedShards, SourceWeight
from .shards import Shards


class StreamedModel:
    """`model` has its buffers but no weights; `fetch` fills some from the folder's files, `release` empties them."""

    def __init__(self, folder: Path, shards: Shards, allowed: Allowed = NOTHING, announce: Announce = say) -> None:
        from transformers import AutoModelForCausalLM

        self._shards = shards
        config = read_config(folder, allowed, dequantised=isinstance(shards, QuantizedShards))
        trust = allowed.trust_remote_code
        check_described(folder, config, shards, trust)
        with _parameters_on_meta():
            self.model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trust).eval()
        self._stored = {place: name for name, place in places(self.model, shards, streamed=True).items()}
        self._check_shapes(folder)
        self.complete = self._is_complete()
        if self.complete:
            refuse_unused(folder, self.model, shards, allowed, announce)

    def source_weight(self, layer: str) -> SourceWeight | None:
        """The layer's weight as another tool quantised it, if one did."""
        stored = self._stored.get(f"{layer}.weight", "")
        return self._shards.source_weight(stored) if isinstance(self._shards, QuantizedShards) else None

    def quantised_layers(self) -> frozenset[str]:
        """Those that another tool quantised, by their names in the model."""
        if not isinstance(self._shards, QuantizedShards):
            return frozenset()
        weights = (place for place, name in self._stored.items() if name in self._shards.quantised)
        return frozenset(weight.removesuffix(".weight") for weight in weights)

    def _is_complete(self) -> bool:
        """Whether the files hold each of the model's tensors as it is, if under another name, and those that it shares
        are the same where the files have both."""
        shared = self.model.all_tied_weights_keys
        if self.model.state_dict().keys() - self._stored.keys() - shared.keys():
            return False
        pairs = [pair for pair in shared.items() if self._stored.keys() >= set(pair)]
        return all(_same(*(self._shards[self._stored[name]] for name in pair)) for pair in pairs)

    def _check_shapes(self, folder: Path) -> None:
        for name, tensor in self.model.state_dict().items():
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
                _set(self.model, key, self._shards[self._stored[key]])
        self.model.tie_weights()

    def weight(self, layer: str) -> Tensor:
        """The weight of a layer, as stored."""
        return self._shards[self._stored[f"{layer}.weight"]]

    def release(self, keys: Iterable[str]) -> None:
        for key in keys:
            _set(self.model, key, self.model.get_parameter_or_buffer(key).to("meta"))


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
