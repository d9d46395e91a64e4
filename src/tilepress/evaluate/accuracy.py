"""Share of multiple-choice questions that a model answers right: the likeliest choice is its answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .estimate import Estimate
from .scoring import losses, predictions
from .tasks import Question
from .windows import Track, batches

T = TypeVar("T")


@dataclass(frozen=True)
class Accuracy:
    """plain: by log-likelihood (lm-eval's acc); normalised: by log-likelihood a character (acc_norm).

    is_right: [2, questions] of 0 and 1, the same question by question.
    """

    plain: Estimate
    normalised: Estimate
    questions: int
    is_right: Tensor = field(repr=False, compare=False)

    @classmethod
    def of(cls, is_right: Tensor) -> "Accuracy":
        plain, normalised = is_right
        return cls(Estimate.of(plain), Estimate.of(normalised), is_right.shape[1], is_right)

    def minus(self, reference: "Accuracy") -> "AccuracyDifference":
        """The gain over another model on the same questions."""
        if self.questions != reference.questions:
            counts = f"{self.questions} and {reference.questions}"
            raise ValueError(f"accuracies on {counts} questions are not of the same ones, and cannot be compared")
        plain, normalised = self.is_right - reference.is_right
        return AccuracyDifference(Estimate.of(plain), Estimate.of(normalised), Estimate.of((plain == 0).double()))


@dataclass(frozen=True)
class AccuracyDifference:
    """A model's accuracy minus a reference's, question by question: errors are those of the differences, far smaller
    than of two accuracies apart. same: share of questions that both answer right, or both wrong, by log-likelihood."""

    plain: Estimate
    normalised: Estimate
    same: Estimate


@dataclass(frozen=True)
class Sequel:
    """Tokens of a prompt and a choice after it, of which those from `start` on are the choice's."""

    tokens: list[int]
    start: int


def accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    batch: int = 8,
    track: Track = iter,
) -> Accuracy:
    """Ask `questions`, `batch` prompts with a choice in one call; `track` sees the batches go by."""
    sequels = [encode(tokenizer, one.prompt, " " + choice) for one in questions for choice in one.choices]
    likelihoods = iter(log_likelihoods(model, sequels, batch, track))
    scores = [[next(likelihoods) for _ in one.choices] for one in questions]
    plain = [_is_right(one, row) for one, row in zip(questions, scores, strict=True)]
    normalised = [_is_right(one, _per_character(one, row)) for one, row in zip(questions, scores, strict=True)]
    return Accuracy.of(torch.tensor([plain, normalised], dtype=torch.float64))


def encode(tokenizer: PreTrainedTokenizerBase, prompt: str, continuation: str) -> Sequel:
    """Both tokenised as one text, as the model would meet it; the continuation has what comes after the prompt's."""
    tokens: list[int] = tokenizer(prompt + continuation, verbose=False).input_ids
    start = len(tokenizer(prompt, verbose=False).input_ids)
    if not 0 < start < len(tokens):
        raise ValueError(f"the tokenizer leaves nothing to predict of {continuation!r} after {prompt!r}")
    return Sequel(tokens, start)


def log_likelihoods(
    model: PreTrainedModel, sequels: Sequence[Sequel], batch: int = 8, track: Track = iter
) -> list[float]:
    """log p, in nats, of each continuation after its prompt."""
    return _in_batches(partial(_batch_log_likelihoods, model), sequels, batch, track)


def are_greedy(model: PreTrainedModel, sequels: Sequence[Sequel], batch: int = 8, track: Track = iter) -> list[bool]:
    """Whether each continuation is, token for token, what greedy decoding writes after its prompt: each of its tokens
    is the likeliest after the prompt and those before it."""
    return _in_batches(partial(_are_batch_greedy, model), sequels, batch, track)


def _in_batches(
    score: Callable[[Sequence[Sequel]], list[T]], sequels: Sequence[Sequel], batch: int, track: Track
) -> list[T]:
    """What `score` gives for each. Sequels of similar length share a batch, so that little of it is padding; the
    longest go first, so that memory runs out at once or never."""
    order = sorted(range(len(sequels)), key=lambda index: -len(sequels[index].tokens))
    by_index = dict[int, T]()
    for indices in track(batches(order, batch)):
        values = score([sequels[index] for index in indices])
        by_index.update(zip(indices, values, strict=True))
    return [by_index[index] for index in range(len(sequels))]


def _batch_log_likelihoods(model: PreTrainedModel, sequels: Sequence[Sequel]) -> list[float]:
    tokens, given, is_scored = _padded(sequels)
    scored = _scored(tokens, sequels)
    nats = losses(predictions(model, tokens, scored, given), tokens[:, -scored:]).double()
    values: list[float] = (-nats * is_scored[:, -scored:]).sum(1).tolist()
    return values


def _are_batch_greedy(model: PreTrainedModel, sequels: Sequence[Sequel]) -> list[bool]:
    tokens, _, is_scored = _padded(sequels)
    scored = _scored(tokens, sequels)
    said = predictions(model, tokens, scored).argmax(-1).cpu()
    is_right = (said == tokens[:, -scored:]) | (is_scored[:, -scored:] == 0)
    values: list[bool] = is_right.all(1).tolist()
    return values


def _scored(tokens: Tensor, sequels: Sequence[Sequel]) -> int:
    """How many of the last positions of a batch have some continuation's tokens."""
    return tokens.shape[1] - min(sequel.start for sequel in sequels)


def _padded(sequels: Sequence[Sequel]) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens, 1 where one is given, 1 where one is a choice's), each [batch, longest]. Padding comes last: positions
    stay what they are alone, and what is before never looks at it."""
    longest = max(len(sequel.tokens) for sequel in sequels)
    tokens, given, is_scored = torch.zeros(3, len(sequels), longest, dtype=torch.int64)
    for row, sequel in enumerate(sequels):
        length = len(sequel.tokens)
        tokens[row, :length] = torch.tensor(sequel.tokens)
        given[row, :length] = 1
        is_scored[row, sequel.start : length] = 1
    return tokens, given, is_scored


def _per_character(question: Question, scores: Sequence[float]) -> list[float]:
    return [score / max(len(choice), 1) for score, choice in zip(scores, question.choices, strict=True)]


def _is_right(question: Question, scores: Sequence[float]) -> float:
    return float(max(range(len(scores)), key=scores.__getitem__) == question.answer)
