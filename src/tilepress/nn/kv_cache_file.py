"""One layer cache as an entry of a KV cache file: a description with checksums, and arrays of bytes."""

from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from ..formats.kv import KvFormat
from ..tiles import DamagedError
from ..tiles.sealed import sha256
from .layer_kv_cache import LayerKvCache

TOKEN_MASK = "kept"  # the array's name in files
MOST_WIDE_EMPTY = 1024  # wide tokens of a format in a file that holds no tokens


class LayerArrays:
    """Arrays of one layer in a file: those whose names begin with `prefix`."""

    def __init__(self, file: Any, prefix: str) -> None:
        self.file, self.prefix = file, prefix

    def __getitem__(self, name: str) -> Tensor:
        try:
            array: Tensor = self.file.get_tensor(self.prefix + name)
        except SafetensorError as error:
            raise DamagedError(f"there is no array {self.prefix + name}") from error
        return array


def describe_layer(layer: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A layer's description, with checksums of its arrays; and the arrays."""
    if not isinstance(layer, LayerKvCache):
        raise ValueError("only packed caches are saved, in block floating point or sparse; halves are ordinary tensors")
    with layer.one_thread:
        layer.store_new_tokens()
        if layer.store is None:
            return {"columns": 0, "lengths": [], "sha256": {}}, {}
        state = layer.store.state()
        if layer.token_mask is not None:
            state[TOKEN_MASK] = layer.token_mask.to(torch.uint8)
        description = {
            "columns": layer.columns,
            "lengths": layer.store.lengths,
            "heads": layer.store.heads,
            "channels": layer.store.channels,
            "window": layer.window,
            "sha256": {name: sha256(array) for name, array in state.items()},
        }
    return description, state


def restore_layer(
    where: str, layer: LayerKvCache, description: Any, arrays: LayerArrays, heads: int, channels: int
) -> None:
    """Make `layer`, which is empty, what `description` and its arrays say."""
    try:
        columns, lengths = int(description["columns"]), [int(length) for length in description["lengths"]]
        digests = {str(name): str(digest) for name, digest in description["sha256"].items()}
        sizes = (description["heads"], description["channels"], description["window"]) if lengths else None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DamagedError(f"{where}: the header cannot be understood: {error!r}") from error
    if sizes is None:
        if wide_tokens(layer.format) > MOST_WIDE_EMPTY:  # memory that no byte of the file stands for
            raise DamagedError(f"{where} is damaged: it holds no tokens, and {layer.format} asks for many")
        return
    if sizes != (heads, channels, layer.window):
        raise ValueError(
            f"{where} is another model's: {sizes[0]} heads of {sizes[1]} channels, not {heads} of {channels}"
        )
    state = _checked_arrays(where, arrays, digests)
    mask = state.pop(TOKEN_MASK, None)
    empty = torch.empty(1, heads, 0, channels)  # of one sequence: how many there are may be a lie
    try:
        layer.lazy_initialization(empty, empty)
        assert layer.store is not None
        layer.store.restore(lengths, state)
        layer.token_mask = _checked_mask(mask, columns, lengths)
    except (ValueError, OverflowError) as error:
        raise DamagedError(f"{where} is damaged: {error}") from error


def wide_tokens(format: KvFormat) -> int:
    """Tokens that have more bits than the rest."""
    return format.bfp.initial + format.bfp.local if format.bfp is not None else 0


def _checked_arrays(where: str, arrays: LayerArrays, digests: dict[str, str]) -> dict[str, Tensor]:
    state = {name: arrays[name].contiguous() for name in digests}
    for name, digest in digests.items():
        if state[name].dtype != torch.uint8 or sha256(state[name]) != digest:
            raise DamagedError(f"{where}.{name} is damaged: its checksum does not match")
    return state


def _checked_mask(mask: Tensor | None, columns: int, lengths: list[int]) -> Tensor | None:
    tokens = [columns] * len(lengths) if mask is None else mask.to(torch.bool).sum(-1).tolist()
    if (mask is not None and tuple(mask.shape) != (len(lengths), columns)) or tokens != lengths:
        raise ValueError("its lengths and its padding do not agree")
    return None if mask is None else mask.to(torch.bool)
