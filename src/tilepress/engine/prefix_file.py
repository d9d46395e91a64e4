"""The beginning of prompts in a file: tokens with their packed keys and values, as `kv_cache` saves them."""

from pathlib import Path

import torch

from .. import _native
from ..nn.layer_kv_cache import LayerKvCache
from ..nn.model_kv_cache import ModelKvCache, kv_cache, load_kv_cache
from .batch import Chunk
from .packed import PackedModel


def save_prefix(runner: PackedModel, tokens: list[int], pages: list[int], step_tokens: int, path: str | Path) -> None:
    """Computes tokens that fill these pages, and writes them to a file."""
    for start in range(0, len(tokens), step_tokens):
        end = min(start + step_tokens, len(tokens))
        used = pages[: -(-end // runner.page_tokens)]
        runner.run([Chunk(tuple(tokens[start:end]), start, tuple(used), 0)])
    cache = kv_cache(runner.model, runner.format, runner.smoothing)
    sequence = runner.sequence_of(pages)
    for number, layer in enumerate(cache.layers):
        _fill(layer, sequence.layer(number), runner, number)
    cache.save(path, torch.tensor([tokens]))


def load_prefix(runner: PackedModel, path: str | Path) -> tuple[list[int], _native.KvSequence]:
    """Tokens of whole pages, and a sequence that holds them. DamagedError or ValueError if the file is not that."""
    cache = load_kv_cache(runner.model, path)
    _check(runner, cache, path)
    assert cache.tokens is not None
    sequence = _native.KvSequence([layer.store.native for layer in cache.layers])
    whole = sequence.length - sequence.length % runner.page_tokens
    if whole == 0 or (whole < sequence.length and not runner.fixed_pages):
        raise ValueError(
            f"{path} holds {sequence.length} tokens, and its format takes none back: save a multiple of "
            f"{runner.page_tokens}"
        )
    sequence.crop(whole)
    return cache.tokens[0, :whole].tolist(), sequence


def _fill(layer: LayerKvCache, store: _native.KvStore, runner: PackedModel, number: int) -> None:
    attention = runner.decoder.blocks[number].attention
    empty = torch.empty(1, attention.num_key_value_heads, 0, attention.head_dim)
    layer.lazy_initialization(empty, empty)
    assert layer.store is not None
    state = {name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, data in store.save() if data}
    layer.store.restore(store.lengths, state)


def _check(runner: PackedModel, cache: ModelKvCache, path: str | Path) -> None:
    """ValueError if its cache is not the engine's."""
    given, own = (cache.format, cache.smoothing), (runner.format, runner.smoothing)
    if given != own:
        raise ValueError(
            f"{path} holds a cache in {given[0]}, smoothing {given[1]}, and the engine's is {own[0]}, {own[1]}"
        )
    if cache.tokens is None or len(cache.tokens) != 1 or any(layer.store is None for layer in cache.layers):
        raise ValueError(f"{path} does not say which tokens of one text it holds")
    if any(layer.store.lengths != [layer.columns] for layer in cache.layers):
        raise ValueError(f"{path} has padding")
