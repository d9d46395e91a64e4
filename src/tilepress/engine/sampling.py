"""How tokens of an answer are chosen, and when it ends: what a user can ask for."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Mask = Callable[[Sequence[int]], Tensor | None]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options act in the order of their fields here, as in transformers.

    max_tokens: of an answer; None is as many as the model can take.
    stop_tokens: ids that end an answer; they are its last token, and not part of its text.
    stop: texts that end an answer; they are not part of its text.
    ignore_eos: the model's own end-of-sequence ids do not end an answer.
    n: answers. best_of: answers that are computed; the n with the highest mean log-probability are returned.
    beams: texts that grow side by side; the n best answers are those of transformers' beam search, and come when all
        are known. Beams are greedy, without `stop`, log-probabilities, and what changes logits.
    length_penalty: the score of an answer of beams, the sum of its log-probabilities, is divided by its length to the
        power of it.
    early_stopping: of beams. True ends when as many answers as beams have ended, False when the best beam is worse than
        all of these at its length, "never" when it would be so at the greatest length.
    seed: the same seed gives the same answer, whatever else is computed; None is another each time.
    logprobs: tokens whose log-probabilities are reported with each token: so many of the highest, and the chosen one.
        None is none at all. They are those of the model, before any option acts.
    logit_bias: added to the logits of tokens.
    repetition_penalty: positive logits of tokens seen, in the prompt too, are divided by it, negative ones multiplied.
    presence_penalty: subtracted from the logits of tokens of the answer so far. frequency_penalty: the same, as often
        as they occur.
    mask: given the answer's tokens so far, which ones may come next: bool [vocabulary], or None for all. If it has a
        method `prepare`, that is given them before the model's step, and the mask is asked for after it.
    temperature: logits are divided by it; 0 takes the most probable token (greedy), whatever the options below.
    top_k: only so many of the most probable tokens, and those as probable as the last of them; 0 is all.
    top_p: only the most probable tokens, until their probabilities sum to it.
    min_p: only tokens with at least this share of the largest probability.
    typical_p: only tokens whose surprise is nearest to the expected one, until their probabilities sum to it.
    """

    max_tokens: int | None = None
    stop_tokens: Collection[int] = ()
    stop: Collection[str] = ()
    ignore_eos: bool = False
    n: int = 1
    best_of: int | None = None
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    seed: int | None = None
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    mask: Mask | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0

    def __post_init__(self) -> None:
        _check_integers(self, max_tokens=1, n=1, best_of=1, beams=1, seed=0, logprobs=0, top_k=0)
        _check_finite(self, "presence_penalty", "frequency_penalty", "length_penalty")
        _check(self, "temperature", lambda value: 0 <= value < math.inf, "0 or more")
        _check(self, "repetition_penalty", lambda value: 0 < value < math.inf, "positive")
        _check(self, "top_p", lambda value: 0 < value <= 1, "above 0 and at most 1")
        _check(self, "min_p", lambda value: 0 <= value <= 1, "between 0 and 1")
        _check(self, "typical_p", lambda value: 0 < value <= 1, "above 0 and at most 1")
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError(f"best_of, {self.best_of}, is less than n, {self.n}")
        if not _is_collection(self.stop) or not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop is several texts, none of them empty, not {self.stop!r}")
        if self.beams > 1:
            self._check_beams()
        _check_ids("stop_tokens", self.stop_tokens)
        _check_ids("logit_bias", self.logit_bias)
        if not all(_is_number(bias) and bias < math.inf for bias in self.logit_bias.values()):
            raise ValueError(f"values of logit_bias are numbers, or -inf, not {dict(self.logit_bias)}")

    def _check_beams(self) -> None:
        if self.n > self.beams:
            raise ValueError(f"n, {self.n}, is more than beams, {self.beams}")
        if self.best_of is not None or self.temperature or self.adjusts or self.logprobs is not None or self.stop:
            raise ValueError("beams go with none of best_of, temperature, logprobs, stop, penalties, biases and masks")
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(f"early_stopping is True, False or never, not {self.early_stopping!r}")

    @property
    def computed(self) -> int:
        """Answers that are computed at a time."""
        return self.beams if self.beams > 1 else self.n if self.best_of is None else self.best_of

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs is not None or self.ranks

    @property
    def ranks(self) -> bool:
        """Whether only the best of several finished answers are given out."""
        return self.best_of is not None and self.best_of > self.n

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before the temperature."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return bool(self.logit_bias) or penalties != (1.0, 0.0, 0.0) or self.mask is not None


def _check(sampling: Sampling, name: str, allows: Callable[[float], bool], words: str) -> None:
    value = getattr(sampling, name)
    if not (_is_number(value) and allows(value)):
        raise ValueError(f"{name} is a number, {words}, not {value!r}")


def _check_finite(sampling: Sampling, *names: str) -> None:
    for name in names:
        _check(sampling, name, math.isfinite, "not infinite")


def _check_integers(sampling: Sampling, **least: int) -> None:
    """None is allowed where it is the default."""
    for name, smallest in least.items():
        value = getattr(sampling, name)
        if value is None and getattr(Sampling, name) is None:
            continue
        if not _is_integer(value) or value < smallest:
            raise ValueError(f"{name} is an integer, {smallest} or more, not {value!r}")


def _check_ids(name: str, ids: Any) -> None:
    if not isinstance(ids, Sequence | Mapping | set | frozenset) or not all(
        _is_integer(one) and one >= 0 for one in ids
    ):
        raise ValueError(f"{name} has ids of tokens, not {ids!r}")


def _is_collection(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
