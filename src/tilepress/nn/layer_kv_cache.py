"""One attention layer's part of a KV cache, as transformers' caches have them: packed, or in halves."""

from threading import RLock
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from ..formats.kv import KvFormat
from ..kernels.attention_reference import PLAIN, Softmax
from ..kernels.kv_store import KvStore, kv_store

IN_USE = "the cache is in use by another thread: give each thread a cache of its own"
HOW = "make the cache by tilepress.kv_cache(model, …), which sees to the model's attention"


class PackedTokens:
    """What a packed layer's `update` returns instead of keys and values; only the attention "tilepress" can use it."""

    def __init__(self, layer: "LayerKvCache", new: tuple[Tensor, Tensor]) -> None:
        object.__setattr__(self, "layer", layer)
        object.__setattr__(self, "new", new)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"keys and values in a packed cache have no {name!r}: {HOW}")


class OneThread:
    """A context that threads enter one at a time; RuntimeError where another is inside.

    Not a lock to wait for: tokens of two texts would come to lie in one cache, and both texts would go wrong.
    """

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(IN_USE)

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["OneThread"], tuple[()]]:
        return OneThread, ()  # a copy is another cache's


class LayerKvCache(CacheLayerMixin):
    """Keys and values of one attention layer, in block floating point or pruned, never to be seen unpacked.

    `update` only remembers new tokens; `attend` stores them, since only then is it known which of them are padding.
    Columns are tokens with padding, which transformers counts in.

    One thread uses it at a time; RuntimeError where another comes meanwhile.
    """

    is_croppable = True
    is_compileable = False
    supports_early_init = False

    def __init__(self, format: KvFormat, smoothed_channels: int = 0, window: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        assert format.bfp is not None or format.is_sparse
        self.format, self.smoothed_channels, self.window = format, smoothed_channels, window
        self.is_sliding = window is not None
        self.one_thread = OneThread()
        self.reset()

    def reset(self) -> None:
        with self.one_thread:
            self.store: KvStore | None = None
            self.token_mask: Tensor | None = None  # bool [batch, columns], false for padding; None where there is none
            self._new: tuple[Tensor, Tensor] | None = None
            self.is_initialized = False

    @property
    def columns(self) -> int:
        """Tokens with padding, both stored and new."""
        stored = 0
        if self.store is not None:
            stored = self.store.lengths[0] if self.token_mask is None else self.token_mask.shape[1]
        return stored + (0 if self._new is None else self._new[0].shape[-2])

    @property
    def is_plain(self) -> bool:
        """Whether it holds one sequence, without padding or a window: what native decoding takes."""
        if self.store is None or self._new is not None or self.token_mask is not None:
            return False
        return self.window is None and len(self.store.lengths) == 1

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        batch, heads, _, channels = key_states.shape
        smoothed = self.smoothed_channels
        self.store = kv_store(self.format, batch, heads, channels, window=self.window, smoothed_channels=smoothed)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Any, Any]:
        with self.one_thread:
            self.store_new_tokens()
            if self.store is None:
                self.lazy_initialization(key_states, value_states)
            self._check(key_states, value_states)
            self._new = key_states, value_states
            tokens = PackedTokens(self, self._new)
        return tokens, tokens

    def _check(self, keys: Tensor, values: Tensor) -> None:
        assert self.store is not None
        shape = (len(self.store.lengths), self.store.heads, keys.shape[-2], self.store.channels)
        if tuple(keys.shape) != shape or tuple(values.shape) != shape:
            raise ValueError(
                f"the cache holds {shape[0]} sequences of {shape[1]} heads with {shape[3]} channels, and the "
                f"model gives keys {list(keys.shape)} and values {list(values.shape)}: it is another "
                "model's cache or another batch"
            )

    def attend(
        self, tokens: PackedTokens, query: Tensor, mask: Tensor | None, scaling: float, softmax: Softmax = PLAIN
    ) -> Tensor:
        """Attention of the tokens that `update` gave: query [batch, heads, new, channels], shaped alike.

        mask: bool [batch or 1, 1, new, columns seen]; None is all up to the query's own.
        """
        with self.one_thread:
            if self.store is None or self._new is None:
                raise RuntimeError("the cache has no tokens that have not been attended to")
            if tokens.new is not self._new:
                raise RuntimeError(IN_USE)
            keys, values = self._new
            new_mask = None if mask is None else self._new_mask(mask, len(keys), keys.shape[-2])
            out = self.store.attend(query, keys, values, scaling, new_mask, softmax=softmax)
            self._mark_stored(new_mask)
        return out

    def _new_mask(self, mask: Tensor, batch: int, new: int) -> Tensor | None:
        """Which new tokens are not padding: those that see themselves. The rest of the mask must be what follows."""
        assert self.store is not None
        visible = mask if mask.dtype == torch.bool else mask == 0
        visible = visible.expand(batch, -1, -1, -1)[:, 0, :, : (self.columns if self.window is None else None)]
        own = visible[:, :, visible.shape[-1] - new :].diagonal(dim1=1, dim2=2)
        before = torch.tensor(self.store.lengths)[:, None]
        expected = before + own.cumsum(1)
        if self.window is not None:
            expected = expected.clamp(max=self.window)
        if self._sees_padding(visible, own) or not torch.equal(visible.sum(-1)[own], expected[own]):
            raise ValueError(
                "a packed cache takes causal masks with padding, and this one shows a token other tokens than all "
                "before it: do not mix sides of padding from call to call, nor hide tokens that were seen"
            )
        return None if bool(own.all()) else own

    def _sees_padding(self, visible: Tensor, own: Tensor) -> bool:
        """Whether a new token, of those that are not padding, sees one that was."""
        past = visible.shape[-1] - own.shape[1]
        if self.token_mask is None or not past:
            return False
        return bool((visible[..., :past] & ~self.token_mask[:, None, -past:])[own].any())

    def store_new_tokens(self) -> None:
        """Store tokens that `update` took and no attention has asked for."""
        if self._new is not None and self.store is not None:
            self.store.append(*self._new)
            self._mark_stored(None)

    def _mark_stored(self, new_mask: Tensor | None) -> None:
        """The new tokens are in `store` now, without padding: `new_mask`, bool [batch, new]."""
        assert self._new is not None and self.store is not None
        batch, _, new, _ = self._new[0].shape
        if new_mask is not None or self.token_mask is not None:
            now = torch.ones(batch, new, dtype=torch.bool) if new_mask is None else new_mask
            past = self.store.lengths[0] - int(now[0].sum())
            old = torch.ones(batch, past, dtype=torch.bool) if self.token_mask is None else self.token_mask
            self.token_mask = torch.cat([old, now], 1)
        self._new = None

    def get_seq_length(self) -> int:
        return self.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        if self.window is None:
            return self.columns + query_length, 0
        offset = max(self.columns - self.window + 1, 0)
        return self.columns - offset + query_length, offset

    def get_max_length(self) -> int:
        return self.window or -1

    @property
    def batch_size(self) -> int:
        return len(self.store.lengths) if self.store is not None else -1

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.store.nbytes if self.store is not None else 0

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -tokens_to_remove columns; a positive number, as transformers once had it, are to remain."""
        with self.one_thread:
            self.store_new_tokens()
            columns = self.columns
            left = tokens_to_remove if tokens_to_remove > 0 else columns + tokens_to_remove
            if self.store is not None and left < columns:
                self._shorten(self.store, max(left, 0), columns)

    def _shorten(self, store: KvStore, left: int, columns: int) -> None:
        mask = self.token_mask
        removed = [columns - left] * self.batch_size if mask is None else mask[:, left:].sum(1).tolist()
        store.crop([length - n for length, n in zip(store.lengths, removed, strict=True)])
        self.token_mask = None if mask is None else mask[:, :left]

    def _select(self, sequences: Tensor) -> None:
        with self.one_thread:
            self.store_new_tokens()
            if self.store is not None:
                self.store.select(sequences.tolist())
                self.token_mask = None if self.token_mask is None else self.token_mask[sequences.to("cpu")]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self._select(torch.arange(self.batch_size)[indices])

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select(torch.arange(self.batch_size).repeat_interleave(repeats))

    def offload(self) -> None:
        """It is on the CPU already."""

    def prefetch(self) -> None:
        """It is on the CPU already."""


class HalfLayerKvCache(CacheLayerMixin):
    """Keys and values of one attention layer as fp16 or bf16: transformers' own layer `plain`, with casts."""

    is_croppable = True
    is_compileable = False

    def __init__(self, format: KvFormat, plain: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.format, self.plain = format, plain
        self.dtype = torch.float16 if format.number == "fp16" else torch.bfloat16
        self.is_sliding = plain.is_sliding

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        keys, values = self.plain.update(key_states.to(self.dtype), value_states.to(self.dtype))
        self.is_initialized = True
        return keys.to(key_states.dtype), values.to(value_states.dtype)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.plain.keys, self.plain.values) if part is not None)

    @property
    def batch_size(self) -> int:
        return -1 if self.plain.keys is None else len(self.plain.keys)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.plain.lazy_initialization(key_states.to(self.dtype), value_states.to(self.dtype))
        self.is_initialized = True

    def get_seq_length(self) -> int:
        return int(self.plain.get_seq_length())

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        sizes: tuple[int, int] = self.plain.get_mask_sizes(query_length)
        return sizes

    def get_max_length(self) -> int:
        return int(self.plain.get_max_length())

    def reset(self) -> None:
        self.plain.reset()

    def crop(self, tokens_to_remove: int) -> None:
        self.plain.crop(tokens_to_remove)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.plain.reorder_cache(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.plain.batch_select_indices(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.plain.batch_repeat_interleave(repeats)
