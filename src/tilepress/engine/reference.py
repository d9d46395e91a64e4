"""A decoder computed from its description, one plain step after another: the specification of the native engine."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .batch import Chunk, Runner, check_chunks, check_pages
from .decoder import Decoder
from .family import describe
from .reference_block import ReferenceBlock, Step, rms_norm


class ReferenceModel(Runner):
    """A `Runner` that computes a causal language model of transformers by its modules, packed or plain, but never by
    their forward() above single linear layers and the embedding.

    Pages are float32. Two kinds of rotary embedding depend on `longest`: see `rotary`.

    Args:
        model: of a family that `describe` knows.
        page_tokens: tokens in a page. pages: how many there are.
        longest: tokens of a sequence at most; by default what the config says.
        decoder: what to compute, if not what `describe` says.
    """

    fixed_pages = True

    def __init__(
        self,
        model: Any,
        page_tokens: int = 32,
        pages: int = 64,
        *,
        longest: int | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        self.decoder = describe(model.config) if decoder is None else decoder
        self.page_tokens, self.pages = page_tokens, pages
        self.vocabulary = self.decoder.vocab_size
        self.longest = self.decoder.max_position_embeddings if longest is None else longest
        self.embedding, self.output = model.get_input_embeddings(), model.get_output_embeddings()
        self.body = model.get_decoder()
        self.blocks = [
            ReferenceBlock(block, self.decoder.norm, module, self.longest)
            for block, module in zip(self.decoder.blocks, self.body.layers, strict=True)
        ]
        self.key_values = [block.attention.empty_pages(pages, page_tokens) for block in self.blocks]
        self.page_bytes = sum(pages[0].nbytes for pages in self.key_values)

    @torch.no_grad()
    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """float32 logits [tokens whose are wanted, vocabulary]; see `Runner`. ValueError, and nothing is changed, if a
        chunk contradicts itself, another one, or this model."""
        if not chunks:
            return torch.empty(0, self.vocabulary)
        check_chunks(self, chunks)
        step = Step(chunks, self.page_tokens)
        wanted = [
            row for rows, chunk in zip(step.rows, chunks, strict=True) for row in _last(rows.tolist(), chunk.logits)
        ]
        return self._logits(self._hidden(step)[wanted])

    def copy_page(self, source: int, target: int) -> None:
        check_pages(self, (source, target))
        for pages in self.key_values:
            pages[target] = pages[source]

    def _hidden(self, step: Step) -> Tensor:
        """[new tokens of all chunks, hidden] after the last block."""
        ids = torch.tensor([token for chunk in step.chunks for token in chunk.tokens])
        x: Tensor = self.embedding(ids) * self.decoder.embedding_multiplier
        for block, pages in zip(self.blocks, self.key_values, strict=True):
            x = block(x, step, pages)
        return x

    def _logits(self, x: Tensor) -> Tensor:
        normed = rms_norm(x, self.body.norm.weight, self.decoder.norm)
        logits: Tensor = self.output(normed).float() / self.decoder.logits_scaling
        cap = self.decoder.final_logit_softcapping
        return logits if cap is None else cap * torch.tanh(logits / cap)


def _last(rows: list[int], count: int) -> list[int]:
    return rows[len(rows) - count :]
