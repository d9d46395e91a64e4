"""Beam search: the answers whose tokens are the most probable together, as transformers finds them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .sampling import Sampling

if TYPE_CHECKING:
    from .request import Generation

Candidate = tuple[float, "Generation", int]  # the score of a beam with one more token, the beam, and the token


class Beams:
    """A request's beams: what may come next of each, and answers that have ended.

    A score is the sum of the log-probabilities of all tokens; that of an ended answer is divided by its length to the
    power of the length penalty.

    Args:
        sampling: as the request has it. ends: tokens that end an answer.
        prompt, limit: tokens of the prompt, and of prompt and answer at most.
    """

    def __init__(self, sampling: Sampling, ends: frozenset[int], prompt: int, limit: int) -> None:
        self.sampling, self.ends, self.prompt, self.limit = sampling, ends, prompt, limit
        self.scores: dict[Generation, float] = {}  # of beams that go on
        self.ended: list[tuple[float, list[int]]] = []  # the best answers, best first
        self._noted: dict[Generation, list[Candidate]] = {}

    @property
    def _most(self) -> int:
        """Candidates that are looked at: enough for all beams to go on, if others end."""
        return max(2, 1 + len(self.ends)) * self.sampling.beams

    def note(self, beam: "Generation", logits: Tensor) -> bool:
        """What may come next of a beam: logits [vocabulary]. Returns whether that is known of all beams."""
        scores = logits.log_softmax(-1) + self.scores.get(beam, 0.0)
        best = scores.topk(min(self._most, len(scores)))
        tokens = best.indices.tolist()
        self._noted[beam] = [(score, beam, token) for score, token in zip(best.values.tolist(), tokens, strict=True)]
        return len(self._noted) >= len(self.scores)

    def advance(self) -> list[Candidate]:
        """The beams that go on, best first; none if the best answers are known."""
        every = [candidate for beam in self.scores or self._noted for candidate in self._noted[beam]]
        best = sorted(every, key=lambda candidate: candidate[0], reverse=True)[: self._most]
        self._noted.clear()
        length = len(best[0][1].tokens) + 1 - self.prompt
        going = [one for one in best if not self._ends(one)]
        ended = [one for one in best[: self.sampling.beams] if self._ends(one)]
        self._end(ended, length)
        going = going[: self.sampling.beams]
        return [] if not going or self._is_done(going[0][0], length) else going

    def _ends(self, candidate: Candidate) -> bool:
        _, beam, token = candidate
        return token in self.ends or len(beam.tokens) + 1 == self.limit

    def _end(self, candidates: list[Candidate], length: int) -> None:
        self.ended += [
            (score / length**self.sampling.length_penalty, [*beam.tokens[self.prompt :], token])
            for score, beam, token in candidates
        ]
        self.ended = sorted(self.ended, key=lambda answer: answer[0], reverse=True)[: self.sampling.beams]

    def _is_done(self, best: float, length: int) -> bool:
        """Whether no beam is going to be better than the answers that have ended, as far as transformers looks."""
        if len(self.ended) < self.sampling.beams:
            return False
        if self.sampling.early_stopping == "never" and self.sampling.length_penalty > 0:
            length = self.limit - self.prompt
        return self.sampling.early_stopping is True or best / length**self.sampling.length_penalty <= self.ended[-1][0]


def are_numbers(logits: Tensor) -> bool:
    return bool(torch.isfinite(logits.max()))
