"""A runner for a model: which one computes it, with which cache, and how many pages fit in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from .._sizes import size_in_bytes
from ..formats import FormatError
from ..formats.kv import KvFormat, parse_kv
from ..kernels.kv_store import can_pack
from ..models import load_model
from ..nn.model_kv_cache import default_cache, default_smoothing
from ..tiles.packing import thread_count
from .batch import Runner
from .decoder import Decoder
from .family import describe
from .native import NativeModel
from .packed import PackedModel, page_bytes
from .ranks.group import RankedModel
from .ranks.messages import PLAIN, Cache
from .text import Decode

_PACKED, _PLAIN, _HALF = "bfp8", "float32", "bf16"
PAGE_TOKENS = 32  # of pages that are not packed


@dataclass(frozen=True)
class Opened:
    """A runner; the tokenizer, if the model was loaded by name; and ids that end an answer."""

    runner: Runner
    tokenizer: Any
    eos: tuple[int, ...]

    @property
    def decode(self) -> Decode | None:
        if self.tokenizer is None:
            return None
        return lambda tokens: str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


def open_models(
    model: Any,
    draft: Any = None,
    kv: str | KvFormat | None = None,
    *,
    kv_memory: int | str = "4 GiB",
    threads: int | None = None,
    smoothing: str | None = None,
    longest: int | None = None,
    ranks: int = 1,
) -> tuple[Opened, Opened | None]:
    """A model, and a draft if there is one, which has one rank; see `Engine`, whose arguments these are. Both get as
    much memory as makes room for the same tokens, if a number takes as much in both. ValueError where there is none, or
    a family is not known."""
    if draft is model and isinstance(draft, Runner):
        raise ValueError("a draft has pages of its own: give another runner than the model's")
    if ranks != 1 and isinstance(model, Runner):
        raise ValueError("ranks are of a model, and a runner is what it is: leave them out")
    given = [_load(one) for one in (model, draft) if one is not None]
    _check_tokenizers([tokenizer for _, tokenizer in given if tokenizer is not None])
    numbers = [_key_value_numbers(one) for one, _ in given]
    memory = size_in_bytes(kv_memory)
    opened = [
        _open(one, tokenizer, kv, memory * count // max(sum(numbers), 1), threads, smoothing, longest, own_ranks)
        for (one, tokenizer), count, own_ranks in zip(given, numbers, (ranks, 1), strict=False)
    ]
    return opened[0], opened[1] if draft is not None else None


def _load(model: Any) -> tuple[Any, Any]:
    """A model or runner, and the tokenizer if it was given by its name."""
    if not isinstance(model, str | Path):
        return model, None
    loaded = load_model(str(model))
    return loaded.model, loaded.tokenizer


def _check_tokenizers(tokenizers: list[Any]) -> None:
    vocabularies = [tokenizer.get_vocab() for tokenizer in tokenizers]
    if any(vocabulary != vocabularies[0] for vocabulary in vocabularies):
        raise ValueError("a draft has the model's vocabulary, and the tokenizer of this one has another")


def _key_value_numbers(model: Any) -> int:
    """Of a token, all layers; none of a runner, which has its own memory."""
    return 0 if isinstance(model, Runner) else _token_numbers(describe(model.config))


def _open(
    model: Any,
    tokenizer: Any,
    kv: str | KvFormat | None,
    memory: int,
    threads: int | None,
    smoothing: str | None,
    longest: int | None,
    ranks: int,
) -> Opened:
    if isinstance(model, Runner):
        return Opened(model, None, ())
    decoder = describe(model.config)
    name = _kv_name(model, decoder, kv)
    if smoothing is None:
        smoothing = default_smoothing(model) if kv is None else "none"
    if ranks != 1:
        ranked = _ranked(model, decoder, name, memory, smoothing, longest, ranks, threads)
        return Opened(ranked, tokenizer, _eos(model))
    runner = _runner(model, decoder, name, memory, smoothing, longest)
    if threads is not None:
        runner.threads = thread_count(threads)
    return Opened(runner, tokenizer, _eos(model))


def is_native(model: Any) -> bool:
    """Whether an engine computes the model's steps by native code."""
    try:
        describe(model.config)
    except ValueError:
        return False
    return True


def _kv_name(model: Any, decoder: Decoder, kv: str | KvFormat | None) -> str:
    """What was asked for, what the model remembers, or the best that fits its heads."""
    if kv is not None:
        return str(kv)
    remembered = default_cache(model)
    if remembered is not None:
        return str(remembered)
    fits = all(can_pack(parse_kv(_PACKED), block.attention.head_dim) for block in decoder.blocks)
    return _PACKED if fits else _PLAIN


def _runner(model: Any, decoder: Decoder, kv: str, memory: int, smoothing: str, longest: int | None) -> NativeModel:
    _check_kv(kv)
    if kv in PLAIN:
        pages = _pages(_plain_bytes(decoder, kv), memory)
        return NativeModel(model, PAGE_TOKENS, pages, longest=longest, decoder=decoder, kv=kv)
    packed = PackedModel(model, kv, longest=longest, decoder=decoder, smoothing=smoothing)
    packed.pages = _pages(packed.page_bytes, memory)
    return packed


def _check_kv(kv: str) -> None:
    if kv == "fp16":
        raise FormatError("the engine has caches in float32, bf16 and packed formats, none in fp16")


def _ranked(
    model: Any,
    decoder: Decoder,
    kv: str,
    memory: int,
    smoothing: str,
    longest: int | None,
    ranks: int,
    threads: int | None,
) -> RankedModel:
    _check_kv(kv)
    plain = kv in PLAIN
    nbytes = _plain_bytes(decoder, kv) if plain else page_bytes(decoder, parse_kv(kv))
    cache = Cache(
        kv=kv,
        smoothing=smoothing,
        pages=_pages(nbytes, memory),
        page_tokens=PAGE_TOKENS if plain else _native.BLOCK_TOKENS,
        longest=decoder.max_position_embeddings if longest is None else longest,
    )
    return RankedModel(model, ranks, decoder, cache, nbytes, threads)


def _plain_bytes(decoder: Decoder, number: str) -> int:
    """Of a page, all layers."""
    return PAGE_TOKENS * _token_numbers(decoder) * (2 if number == _HALF else 4)


def _token_numbers(decoder: Decoder) -> int:
    return sum(2 * block.attention.num_key_value_heads * block.attention.head_dim for block in decoder.blocks)


def _pages(page_bytes: int, memory: int) -> int:
    if memory < page_bytes:
        raise ValueError(f"{memory} bytes are no room for a cache, whose smallest part has {page_bytes}: give more")
    return memory // page_bytes


def _eos(model: Any) -> tuple[int, ...]:
    config = getattr(model, "generation_config", None) or model.config
    ids = config.eos_token_id
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list | tuple) else (ids,)
