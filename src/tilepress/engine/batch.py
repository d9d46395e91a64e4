"""What the scheduler gives a model in one step: the contract between the two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """New tokens of one sequence in one step.

    tokens: their ids.
    start: tokens of the sequence that are cached already.
    pages: indices of the pages that hold its tokens 0 … start + len(tokens) - 1; page i of them holds the tokens from
        i · page_tokens on.
    logits: of how many of its last tokens logits are wanted.
    """

    tokens: tuple[int, ...]
    start: int
    pages: tuple[int, ...]
    logits: int

    @property
    def guessed(self) -> tuple[int, ...]:
        """Tokens that may follow, of a chunk that decodes: all whose logits are wanted but the first."""
        return self.tokens[len(self.tokens) - self.logits + 1 :] if self.logits > 1 else ()


@runtime_checkable
class Runner(Protocol):
    """A model that computes steps, and the pages with its keys and values.

    page_tokens: tokens in a page. vocabulary: logits of a token. longest: tokens of a sequence at most.
    page_bytes: bytes of one page, all layers. pages: how many there are.
    fixed_pages: whether a full page stays as it is, whatever tokens come after it. Otherwise a sequence goes on only
        from a last page that is its own, or was copied while another sequence stood at its end.
    """

    page_tokens: int
    vocabulary: int
    longest: int
    page_bytes: int
    pages: int
    fixed_pages: bool

    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """float32 logits [tokens whose are wanted, vocabulary], in the order of the chunks. Keys and values of all new
        tokens are then in the chunks' pages. Later chunks may put other tokens in the places of some in a page that is
        not full, from some token on."""
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Let page `target` hold what page `source` holds."""
        ...

    def can_go_on(self, page: int) -> bool:
        """Whether a sequence, or a copy of one, stands at the end of a full page."""
        return True

    def release(self, pages: Sequence[int]) -> None:
        """No sequence has these pages any more, and none will begin with what they hold."""
        return None


def check_chunks(runner: Runner, chunks: Sequence[Chunk]) -> None:
    """ValueError if a chunk contradicts itself, another one, or the runner."""
    for chunk in chunks:
        _check_chunk(runner, chunk)
    taken: set[tuple[int, int]] = set()
    for chunk in chunks:
        for token in range(chunk.start, chunk.start + len(chunk.tokens)):
            place = (chunk.pages[token // runner.page_tokens], token % runner.page_tokens)
            if place in taken:
                raise ValueError(f"two chunks have new tokens in the same place of page {place[0]}")
            taken.add(place)


def check_logits(runner: Runner, chunks: Sequence[Chunk], logits: Tensor) -> None:
    """ValueError if a runner has given something else than logits of these chunks."""
    shape = (sum(chunk.logits for chunk in chunks), runner.vocabulary)
    if logits.shape != shape or logits.dtype != torch.float32:
        raise ValueError(f"logits are float32 {list(shape)}, not {logits.dtype} {list(logits.shape)}")


def check_pages(runner: Runner, pages: Sequence[int]) -> None:
    """ValueError if one is no page of the runner's."""
    if not all(0 <= page < runner.pages for page in pages):
        raise ValueError(f"pages are 0 … {runner.pages - 1}, not {pages}")


def _check_chunk(runner: Runner, chunk: Chunk) -> None:
    length = chunk.start + len(chunk.tokens)
    if not chunk.tokens or chunk.start < 0:
        raise ValueError(f"a chunk has tokens, and starts at 0 or later: {chunk}")
    if not 0 <= chunk.logits <= len(chunk.tokens):
        raise ValueError(f"logits are of none of a chunk's tokens, or of some of them: {chunk}")
    if length > runner.longest:
        raise ValueError(f"a sequence has at most {runner.longest} tokens, not {length}")
    if len(chunk.pages) * runner.page_tokens < length:
        raise ValueError(f"{length} tokens do not fit in {len(chunk.pages)} pages of {runner.page_tokens}")
    check_pages(runner, chunk.pages)
    if len(set(chunk.pages)) < len(chunk.pages):
        raise ValueError(f"the pages of a sequence differ from each other, not {chunk.pages}")
    if not all(0 <= token < runner.vocabulary for token in chunk.tokens):
        raise ValueError(f"tokens are 0 … {runner.vocabulary - 1}, not {chunk.tokens}")
