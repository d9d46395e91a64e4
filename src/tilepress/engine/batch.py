"""What the scheduler gives a model in one step: the contract between the two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """New tokens of one sequence in one step.

    tokens: their ids.
    start: tokens of the sequence that are cached already.
    pages: indices of the pages that hold its tokens 0 … start + len(tokens) - 1; page i of them holds the tokens from
        i · page_tokens on.
    wants_logits: whether the logits of its last token are wanted.
    """

    tokens: tuple[int, ...]
    start: int
    pages: tuple[int, ...]
    wants_logits: bool


class Runner(Protocol):
    """A model that computes steps, and the pages with its keys and values.

    page_tokens: tokens in a page. vocabulary: logits of a token. longest: tokens of a sequence at most.
    page_bytes: bytes of one page, all layers. pages: how many there are.
    """

    page_tokens: int
    vocabulary: int
    longest: int
    page_bytes: int
    pages: int

    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """float32 logits [chunks that want them, vocabulary], in the order of the chunks. Keys and values of all new
        tokens are then in the chunks' pages."""
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Let page `target` hold what page `source` holds."""
        ...
