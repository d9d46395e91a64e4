"""KV caches for transformers' models: keys and values packed, and attended to without unpacking them to memory.

    cache = tilepress.kv_cache(model, "bfp4n+rotate")
    model.generate(prompt, past_key_values=cache)

The cache's `update` hands the packed layer itself to the attention function "tilepress", which `kv_cache` sets in the
model and which does whatever transformers' "sdpa" does where keys and values are tensors.
"""

import copy
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from ..formats import FormatError
from ..formats.kv import KvFormat, parse_kv, smoothed_channels
from ..kernels.kv_store import check_channels, check_lanes
from ..tiles import DamagedError
from ..tiles.sealed import open_sealed, read_sealed, write_sealed
from .fingerprint import Fingerprint, fingerprint, weights_state
from .kv_attention import ATTENTION
from .kv_cache_file import LayerArrays, describe_layer, restore_layer, wide_tokens
from .layer_kv_cache import IN_USE, HalfLayerKvCache, LayerKvCache

VERSION = 3
TOKENS = {"DynamicLayer", "DynamicSlidingWindowLayer"}  # layers of transformers' caches that hold keys and values
STATES = {"LinearAttentionLayer"}  # and those of a size that does not grow, which stay as they are
MOST_WIDE = 4096  # tokens with more bits than the rest, in a model that takes no more tokens than that


class ModelKvCache(Cache):
    """A transformers `Cache` whose layers store keys and values in `format`; see `kv_cache`.

    `model` is the one it is for, as long as somebody else holds it, and in its own process. `tokens` are those that a
    file says it is of. It can be pickled, and goes on where it was, for the same model there.
    """

    layers: list[Any]

    def __init__(self, format: KvFormat, smoothing: str, model: Any, layers: list[Any]) -> None:
        super().__init__(layers=layers)
        self.format, self.smoothing = format, smoothing
        self._model: weakref.ref[Any] | None = weakref.ref(model)
        self._weights = weights_state(model)
        self._fingerprint: Fingerprint | None = None
        self.tokens: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModelKvCache":
        layers = [copy.deepcopy(layer, memo) for layer in self.layers]
        twin = ModelKvCache.__new__(ModelKvCache)
        twin.__dict__.update(self.__dict__, layers=layers, tokens=None)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        known = self.fingerprint if is_packed(self.format) else None
        return {**self.__dict__, "_model": None, "_weights": None, "_fingerprint": known}

    @property
    def model(self) -> Any:
        return None if self._model is None else self._model()

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the model; ValueError if it is gone, or its weights have changed since the cache was made."""
        if self._fingerprint is None:
            if self.model is None:
                raise ValueError("the model of this cache is gone: save or pickle the cache before that")
            if weights_state(self.model) != self._weights:
                raise ValueError("the model's weights have changed since this cache was made: make another cache")
            self._fingerprint = fingerprint(self.model)
        return self._fingerprint

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(_state_bytes(layer) if _is_state(layer) else layer.nbytes for layer in self.layers)

    def save(self, path: str | Path, tokens: Tensor | None = None) -> None:
        """Write everything to a safetensors file, to be taken up by `load_kv_cache`; `tokens` [batch, length] with it,
        as many as it holds or more."""
        if any(map(_is_state, self.layers)):
            raise ValueError("caches of models with states beside keys and values cannot be saved: pickle them instead")
        layers = [describe_layer(layer) for layer in self.layers]
        if len({description["columns"] for description, _ in layers} - {0}) > 1:
            raise RuntimeError(IN_USE)  # while its layers were copied one after the other
        arrays = {f"{i}.{name}": array for i, (_, state) in enumerate(layers) for name, array in state.items()}
        header = {
            "version": VERSION,
            "kv_cache": str(self.format),
            "smoothing": self.smoothing,
            "model": asdict(self.fingerprint),
            "tokens": None if tokens is None else tokens.tolist(),
            "layers": [description for description, _ in layers],
        }
        try:
            write_sealed(path, arrays or {"nothing": torch.zeros(1)}, header)
        except SafetensorError as error:
            where = f"the cache cannot be written to {path} ({error})"
            raise OSError(f"{where}: make room there, or name another place") from error


def kv_cache(model: Any, format: str | KvFormat = "bfp4n+rotate", smoothing: str = "none") -> ModelKvCache:
    """An empty cache in `format` for `model`, a causal language model of transformers, and its attention set to use it.

    Args:
        format: fp16, bf16, bfp8, bfp4, bfp4n+rotate, sparse:k30,v50 …; see `tilepress.formats.kv`.
        smoothing: "online" subtracts half of the extremes of the channels with the largest from keys; "none" does not.
            No attention changes by it but in what rounding loses.
    """
    parsed = parse_kv(format)
    plain = DynamicCache(config=model.config).layers
    _check_model(model, parsed, plain)
    smoothed = smoothed_channels(parsed, smoothing, _head_channels(model))
    if not is_packed(parsed):
        halves = [layer if _is_state(layer) else HalfLayerKvCache(parsed, layer) for layer in plain]
        return ModelKvCache(parsed, "none", model, halves)
    model.set_attn_implementation(ATTENTION)
    layers = [layer if _is_state(layer) else LayerKvCache(parsed, smoothed, _window(layer)) for layer in plain]
    return ModelKvCache(parsed, smoothing, model, layers)


def set_default_cache(model: Any, format: str | KvFormat, smoothing: str = "none") -> None:
    """Let `model.generate` begin with an empty cache like that wherever it is given none; "model" ends it."""
    model.__dict__.pop("_prepare_cache_for_generation", None)
    if format != "model":
        check_kv_cache(model, format)
        model._prepare_cache_for_generation = _Caching(model, parse_kv(format), smoothing)


def default_cache(model: Any) -> KvFormat | None:
    """What `set_default_cache` set, if anything."""
    prepare = model.__dict__.get("_prepare_cache_for_generation")
    return prepare.format if isinstance(prepare, _Caching) else None


def default_smoothing(model: Any) -> str:
    """The smoothing that `set_default_cache` set with the format."""
    prepare = model.__dict__.get("_prepare_cache_for_generation")
    return prepare.smoothing if isinstance(prepare, _Caching) else "none"


def check_kv_cache(model: Any, format: str | KvFormat) -> None:
    """FormatError or ValueError where `model` cannot have a cache in `format`."""
    _check_model(model, parse_kv(format), DynamicCache(config=model.config).layers)


class _Caching:
    """A model's `_prepare_cache_for_generation`: what `generate` calls to get a cache."""

    def __init__(self, model: Any, format: KvFormat, smoothing: str) -> None:
        self.model, self.format, self.smoothing = model, format, smoothing

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Caching":
        return _Caching(memo.get(id(self.model), self.model), self.format, self.smoothing)

    def __call__(self, generation_config: Any, model_kwargs: dict[str, Any], *rest: Any, **options: Any) -> Any:
        is_open = generation_config.cache_implementation is None and generation_config.use_cache is not False
        if is_open and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = kv_cache(self.model, self.format, self.smoothing)
        plain = type(self.model)._prepare_cache_for_generation
        return plain(self.model, generation_config, model_kwargs, *rest, **options)


def load_kv_cache(model: Any, path: str | Path) -> ModelKvCache:
    """A cache that was saved, for the same model; DamagedError or ValueError if it is not that."""
    header = read_sealed(path, VERSION)
    try:
        name, smoothing, layers = str(header["kv_cache"]), str(header["smoothing"]), list(header["layers"])
        of_model, tokens = Fingerprint(**header["model"]), header["tokens"]
    except (KeyError, TypeError) as error:
        raise DamagedError(f"{path} holds no KV cache") from error
    if not is_packed(parse_kv(name)):
        raise DamagedError(f"{path} is damaged: a cache in {name} is never saved")
    cache = kv_cache(model, name, smoothing)
    if len(layers) != len(cache.layers):
        raise ValueError(f"{path} is another model's cache: it has {len(layers)} layers, not {len(cache.layers)}")
    heads, channels = _heads(model), _head_channels(model)
    with open_sealed(path) as file:
        for i, (layer, description) in enumerate(zip(cache.layers, layers, strict=True)):
            restore_layer(f"{path}: layer {i}", layer, description, LayerArrays(file, f"{i}."), heads, channels)
    if not of_model.matches(cache.fingerprint):
        raise ValueError(f"{path} is another model's cache: the weights that made it are not this model's")
    cache.tokens = _checked_tokens(path, tokens, cache)
    return cache


def _checked_tokens(path: str | Path, tokens: Any, cache: ModelKvCache) -> Tensor | None:
    """As a tensor [batch, length]; DamagedError where the cache holds more tokens than these."""
    try:
        ids = None if tokens is None else torch.tensor(tokens, dtype=torch.long)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise DamagedError(f"{path}: its tokens cannot be understood: {error}") from error
    if ids is not None and (ids.ndim != 2 or ids.shape[1] < cache.get_seq_length()):
        raise DamagedError(f"{path} has tokens {list(ids.shape)}, and holds {cache.get_seq_length()} of a sequence")
    return ids


def _check_model(model: Any, format: KvFormat, layers: list[Any]) -> None:
    kinds = {type(layer).__name__ for layer in layers}
    odd = kinds - TOKENS - STATES
    if odd or not kinds & TOKENS:
        raise ValueError(
            f"{type(model).__name__} has caches that cannot be packed: {', '.join(sorted(odd or kinds)) or 'none'}"
        )
    if not is_packed(format):
        return
    _check_attention(model)
    _check_wide_tokens(model, format)
    if next(model.parameters()).device.type not in ("cpu", "meta"):
        raise ValueError(
            "packed caches compute on the CPU, and the model is elsewhere: move it, or use `tilepress eval`"
        )
    try:
        if format.bfp is None:
            check_lanes(format, _head_channels(model))
        else:
            check_channels(format.bfp, _head_channels(model))
    except FormatError as error:
        raise FormatError(f"{type(model).__name__} cannot have a cache in {format}: {error}") from error


def _check_attention(model: Any) -> None:
    """ValueError where attention does not go through transformers' interface, or caches something else."""
    kind, config = type(model).__name__, model.config.get_text_config(decoder=True)
    if not getattr(model, "_can_set_attn_implementation", lambda: True)():
        raise ValueError(f"{kind} has attention of its own code, which knows no packed caches: take fp16 or bf16")
    if getattr(config, "kv_lora_rank", None) is not None:
        raise ValueError(f"{kind} caches latent vectors instead of keys and values: take fp16 or bf16")


def _check_wide_tokens(model: Any, format: KvFormat) -> None:
    """A format may come from a file, and every cache has memory for all its wide tokens from the first one on."""
    most = max(MOST_WIDE, getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or 0)
    if wide_tokens(format) > most:
        raise FormatError(
            f"{type(model).__name__} cannot have a cache in {format}: write initial and local of {most} tokens or fewer"
        )


def is_packed(format: KvFormat) -> bool:
    return format.bfp is not None or format.is_sparse


def _head_channels(model: Any) -> int:
    config = model.config.get_text_config(decoder=True)
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _heads(model: Any) -> int:
    config = model.config.get_text_config(decoder=True)
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def _is_state(layer: Any) -> bool:
    return type(layer).__name__ in STATES


def _state_bytes(layer: Any) -> int:
    states = (*layer.conv_states.values(), *layer.recurrent_states.values())
    return sum(state.nbytes for state in states if state is not None)


def _window(layer: Any) -> int | None:
    window: int | None = getattr(layer, "sliding_window", None)
    return window
