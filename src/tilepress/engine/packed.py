"""A native model whose sequences are packed: keys and values in any format of KV caches that has stores."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _native
from ..formats.kv import KvFormat, parse_kv, smoothed_channels
from ..kernels.kv_store import KvStore, kv_store
from .batch import Chunk, check_chunks, check_pages
from .decoder import Decoder
from .native import NativeModel, Rank

_MEASURED = 8  # blocks of random tokens, by which their size is known


class PackedModel(NativeModel):
    """A `NativeModel` over packed keys and values. Attention to them is the same, to the bit, as that of a model of
    transformers with `tilepress.kv_cache`.

    A page is 32 tokens. Full ones are fixed, and so shared one by one, in formats without wider first and last tokens
    and without zeros left out, in models without sliding windows. Otherwise sequences are copied where others go on
    from them; the copies share what no later token changes.

    Args:
        model: of a family that `describe` knows.
        kv: the format, see `tilepress.formats.kv`.
        pages: how many there are.
        longest: tokens of a sequence at most; by default what the config says.
        decoder: what to compute, if not what `describe` says.
        smoothing: of keys, none or online.
        rank: see `NativeModel`.
    """

    def __init__(
        self,
        model: Any,
        kv: str | KvFormat = "bfp8",
        pages: int = 64,
        *,
        longest: int | None = None,
        decoder: Decoder | None = None,
        smoothing: str = "none",
        rank: Rank | None = None,
    ) -> None:
        self.model, self.format, self.smoothing = model, parse_kv(kv), smoothing
        super().__init__(model, _native.BLOCK_TOKENS, pages, longest=longest, decoder=decoder, kv="packed", rank=rank)
        self._kinds = [store.native for store in self._stores()]
        self.fixed_pages = all(store.has_blocks for store in self._kinds)
        self._open: dict[int, _native.KvSequence] = {}  # by the page of their last token
        self._blocks: dict[int, _native.KvSequenceBlock] = {}  # by page: those that are full

    def places_of(self, chunks: Sequence[Chunk]) -> list[_native.KvSequence]:
        check_chunks(self, chunks)
        return [self._sequence(chunk) for chunk in chunks]

    def compute(self, chunks: Sequence[Chunk], places: Sequence[_native.KvSequence]) -> Tensor:
        for chunk in chunks:
            self._open.pop(self._last_page(chunk, chunk.start), None)  # lost, if this step fails
        logits = super().compute(chunks, places)
        for chunk, sequence in zip(chunks, places, strict=True):
            self._keep(chunk, sequence)
        return logits

    def copy_page(self, source: int, target: int) -> None:
        check_pages(self, (source, target))
        self.release((target,))
        if source in self._open:
            self._open[target] = self._open[source].fork()
        if source in self._blocks:
            self._blocks[target] = self._blocks[source]

    def sequence_of(self, pages: Sequence[int]) -> _native.KvSequence:
        """That fills these pages. ValueError if there is none."""
        return self._sequence(Chunk((0,), len(pages) * self.page_tokens, tuple(pages), 0))

    def hold(self, pages: Sequence[int], sequence: _native.KvSequence) -> None:
        """Let the pages have the tokens of a sequence that fills them."""
        self._keep(Chunk((0,) * sequence.length, 0, tuple(pages), 0), sequence)

    def can_go_on(self, page: int) -> bool:
        if self.fixed_pages:
            return True
        standing = self._open.get(page)
        return standing is not None and not standing.spoiled and standing.length % self.page_tokens == 0

    def release(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._open.pop(page, None)
            self._blocks.pop(page, None)

    def read_page(self, layer: int, page: int) -> Tensor:
        raise ValueError("packed tokens cannot be read")

    def _sequence(self, chunk: Chunk) -> _native.KvSequence:
        """With the tokens before the chunk; ValueError if its pages do not hold them."""
        if chunk.start == 0:
            return _native.KvSequence(self._kinds, [])
        known = self._open.get(self._last_page(chunk, chunk.start))
        if known is not None and (known.spoiled or known.length >= chunk.start):
            if not known.spoiled:
                known.crop(chunk.start)
            return known
        before = chunk.pages[: chunk.start // self.page_tokens]
        if chunk.start % self.page_tokens or not all(page in self._blocks for page in before):
            raise ValueError(f"pages {before} do not hold {chunk.start} tokens of one sequence")
        return _native.KvSequence(self._kinds, [self._blocks[page] for page in before])

    def _last_page(self, chunk: Chunk, length: int) -> int:
        """Of the first tokens of a sequence; -1 if there are none."""
        return chunk.pages[(length - 1) // self.page_tokens] if length else -1

    def _keep(self, chunk: Chunk, sequence: _native.KvSequence) -> None:
        end = chunk.start + len(chunk.tokens)
        for index in range(chunk.start // self.page_tokens, end // self.page_tokens):
            self._open.pop(chunk.pages[index], None)
            if self.fixed_pages and not sequence.spoiled:
                self._blocks[chunk.pages[index]] = sequence.block(index)
        if end % self.page_tokens or not self.fixed_pages or sequence.spoiled:
            self._open[self._last_page(chunk, end)] = sequence

    def _stores(self) -> list[KvStore]:
        """Empty ones, of each layer."""
        return [self._store(layer) for layer in range(len(self.decoder.blocks))]

    def _store(self, layer: int) -> KvStore:
        attention = self.decoder.blocks[layer].attention
        heads, channels, window = attention.num_key_value_heads, attention.head_dim, attention.sliding_window
        smoothed = smoothed_channels(self.format, self.smoothing, channels)
        return kv_store(self.format, 1, heads, channels, window=window, smoothed_channels=smoothed)

    def _page_bytes(self) -> int:
        return page_bytes(self.decoder, self.format)


def page_bytes(decoder: Decoder, format: KvFormat) -> int:
    """Of a page amid a long sequence: what tokens add, all layers."""
    kinds = [(block.attention.num_key_value_heads, block.attention.head_dim) for block in decoder.blocks]
    sizes = {kind: _block_bytes(format, kind) for kind in set(kinds)}
    return sum(sizes[kind] for kind in kinds)


def _block_bytes(format: KvFormat, kind: tuple[int, int]) -> int:
    """Of heads with so many channels each."""
    store = kv_store(format, 1, *kind)
    shape = (1, kind[0], _MEASURED * _native.BLOCK_TOKENS, kind[1])
    generator = torch.Generator().manual_seed(0)
    sizes = []
    for _ in range(2):
        store.append(*(torch.randn(shape, generator=generator) for _ in range(2)))
        sizes.append(store.nbytes)
    return (sizes[1] - sizes[0]) // _MEASURED
