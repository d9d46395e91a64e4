"""Which model something was computed by: a digest of its config and of every byte of its weights."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..tiles.sealed import sha256
from .linear import PackedLinear
from .packed import STREAMS, PackedModule

# What a config says beside how the model computes: where it came from, in which type, what else it returns.
UNRELATED = {
    "architectures",
    "dtype",
    "output_attentions",
    "output_hidden_states",
    "quantization_config",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}


@dataclass(frozen=True)
class Fingerprint:
    """`exact`: of all bytes. `rounded`: the same with floats rounded to bfloat16. `types`: of the floats."""

    exact: str
    rounded: str
    types: str

    def matches(self, other: "Fingerprint") -> bool:
        """Whether both are of one model, loaded in another type perhaps."""
        return self.exact == other.exact or (self.types != other.types and self.rounded == other.rounded)


_known: WeakKeyDictionary[nn.Module, tuple[tuple[Any, ...], Fingerprint]] = WeakKeyDictionary()


def fingerprint(model: nn.Module) -> Fingerprint:
    """Of the model as it is now: about a second for each GB of weights, and once until they change."""
    places = tuple(part.data_ptr() for _, part in _parts(model) if isinstance(part, Tensor))
    state = (*weights_state(model), places)
    known = _known.get(model)
    if known is None or known[0] != state:
        known = _known[model] = (state, _compute(model))
    return known[1]


def weights_state(model: nn.Module) -> tuple[Any, ...]:
    """Another one when a weight has been replaced, cast or changed in place (but by way of `.data`), at little cost.
    Weights that have only moved, into memory that processes share, are the same."""
    return tuple(
        part if isinstance(part, str) else (id(part), part.dtype, -1 if part.is_inference() else part._version)
        for _, part in _parts(model)
    )


def _compute(model: nn.Module) -> Fingerprint:
    exact, rounded = (hashlib.sha256(_config(model).encode()) for _ in range(2))
    types, names = set[str](), dict[int, str]()
    for name, part in _parts(model):
        if isinstance(part, str):
            digests = (part, part)
        elif id(part) in names:  # tied weights
            digests = (names[id(part)],) * 2
        else:
            names[id(part)], digests = name, _digests(part)
            types |= {str(part.dtype)} if part.is_floating_point() else set()
        for digest, text in zip((exact, rounded), digests, strict=True):
            digest.update(f"{name} {text}\n".encode())
    return Fingerprint(exact.hexdigest(), rounded.hexdigest(), " ".join(sorted(types)))


def _digests(tensor: Tensor) -> tuple[str, str]:
    here = tensor.detach().cpu().contiguous()
    exact = f"{here.dtype} {list(here.shape)} {sha256(here)}"
    if not here.is_floating_point():
        return exact, exact
    return exact, f"{list(here.shape)} {sha256(here.to(torch.bfloat16))}"


def _parts(model: nn.Module) -> Iterator[tuple[str, Tensor | str]]:
    """Name and value of each tensor that a file of the model would hold. Packed layers have a text instead of most of
    theirs, which has checksums of them."""
    for prefix, module in model.named_modules():
        skipped = module._non_persistent_buffers_set
        if isinstance(module, PackedLinear):
            yield f"{prefix}.activations", module.activations
        if isinstance(module, PackedModule):
            skipped = {*STREAMS}
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in skipped:
                yield f"{prefix}.{name}", tensor


def _config(model: nn.Module) -> str:
    config: Any = getattr(model, "config", None)
    stated = config.to_dict() if hasattr(config, "to_dict") else {}
    return json.dumps(_related(stated), sort_keys=True, default=str)


def _related(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _related(v) for k, v in value.items() if not str(k).startswith("_") and k not in UNRELATED}
    return value
