"""What a search may ask for next: so that several workers have something to do, though it asks for one thing at a time.

The search itself is run again with what is known. At the first question without an answer both are assumed, that the
combination is taken and that it is not, and so on: the questions that need the fewest assumptions come first. Without
the reference no perplexity says whether a combination is taken: then both are assumed of those that are known, too.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .search import Mantissas, Perplexity

Search = Callable[[Perplexity], Any]
Known = Callable[[Mantissas | None], float | None]

TAKEN, NOT_TAKEN, REFERENCE = 0.0, math.inf, 1.0  # assumed perplexities


class _Unknown(Exception):
    """The question that a search has come to."""

    def __init__(self, mantissas: Mantissas | None) -> None:
        self.mantissas = mantissas


def questions(search: Search, known: Known) -> Iterator[Mantissas | None]:
    """All that `search` may still ask for, whatever the answers; some of it several times."""
    usable = _nothing if known(None) is None else known
    waiting = deque[Mapping[Mantissas | None, float]]([{}])
    while waiting:
        assumed = waiting.popleft()
        try:
            search(_answers(usable, assumed))
        except _Unknown as unknown:
            question = unknown.mantissas
            if known(question) is None:
                yield question
            answers = (REFERENCE,) if question is None else (NOT_TAKEN, TAKEN)
            waiting.extend({**assumed, question: answer} for answer in answers)


def _nothing(mantissas: Mantissas | None) -> None:
    return None


def _answers(known: Known, assumed: Mapping[Mantissas | None, float]) -> Perplexity:
    def answer(mantissas: Mantissas | None) -> float:
        perplexity = known(mantissas)
        if perplexity is None:
            perplexity = assumed.get(mantissas)
        if perplexity is None:
            raise _Unknown(mantissas)
        return perplexity

    return answer
