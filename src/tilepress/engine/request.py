"""A request in the engine: its answers, and what is given out of them."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .beams import Beams
from .sampler import Sampled, mix
from .sampling import Sampling
from .sequence import TokenSequence
from .stream import FinishReason, Result, Stream
from .text import Decode, TextStream


@dataclass(eq=False)
class Request:
    """What was submitted, and where its results go.

    seed: of all its answers. ends: tokens that end an answer.
    limit: tokens of prompt and answer at most. deadline: by the engine's clock.
    generations: answers that are computed. beams: of a request for these.
    """

    sampling: Sampling
    seed: int
    ends: frozenset[int]
    limit: int
    deadline: float | None
    decode: Decode | None
    stream: Stream = field(init=False)
    generations: list["Generation"] = field(default_factory=list)
    beams: Beams | None = None
    _ranked: dict[int, list[tuple[Result, str | None]]] = field(default_factory=dict)

    def put(self, result: Result, error: str | None = None) -> None:
        """A result of an answer, to the stream at once, or when the best answers are known."""
        if not self.sampling.ranks:
            self.stream.put(result, error)
            return
        self._ranked.setdefault(result.answer, []).append((result, error))
        if sum(results[-1][0].finish_reason is not None for results in self._ranked.values()) == self.sampling.computed:
            self._put_best()

    def put_tokens(self, answer: int, tokens: Sequence[int]) -> None:
        """A whole answer, whose text is decoded now."""
        text = None if self.decode is None else TextStream(self.decode, ())
        results = [Result(answer, token, text=self._text_of(token, text)) for token in tokens]
        reason: FinishReason = "stop" if tokens[-1] in self.ends else "length"
        rest = results[-1].text + ("" if text is None else text.rest())
        for result in (*results[:-1], replace(results[-1], text=rest, finish_reason=reason)):
            self.put(result)

    def _text_of(self, token: int, text: TextStream | None) -> str:
        return "" if text is None or token in self.ends else text.add(token)[0]

    def end(self, answers: range, reason: FinishReason, error: str | None = None, text: str = "") -> None:
        """Answers that end without another token."""
        for answer in answers:
            self.put(Result(answer, None, text=text, finish_reason=reason), error)

    def _put_best(self) -> None:
        best = sorted(sorted(self._ranked), key=lambda answer: _score(self._ranked[answer]), reverse=True)
        for place, answer in enumerate(best[: self.sampling.n]):
            for result, error in self._ranked[answer]:
                self.stream.put(replace(result, answer=place), error)


def _score(results: list[tuple[Result, str | None]]) -> float:
    """The mean log-probability of an answer's tokens; answers that went wrong are last."""
    logprobs = [result.logprob for result, _ in results if result.logprob is not None]
    return sum(logprobs) / len(logprobs) if logprobs and results[-1][1] is None else -float("inf")


@dataclass(eq=False, kw_only=True)
class Generation(TokenSequence):
    """An answer that is computed, or all of a request's until its prompt is.

    answer: which one. seed: of its random numbers.
    """

    request: Request
    answer: int = 0
    seed: int = field(init=False)
    text: TextStream | None = field(init=False)

    def __post_init__(self) -> None:
        self.seed = mix(self.request.seed + mix(self.answer + 1))
        decode = self.request.decode
        self.text = None if decode is None else TextStream(decode, tuple(self.sampling.stop))
        self.request.generations.append(self)

    @property
    def sampling(self) -> Sampling:
        return self.request.sampling

    def others(self) -> list["Generation"]:
        """The request's other answers, which have the same tokens so far."""
        return [self.another(answer) for answer in range(1, self.width)]

    def another(self, answer: int) -> "Generation":
        """One more of the request's answers, with the tokens of this one."""
        order = (*self.order[:2], answer)
        return Generation(tokens=self.tokens[:], prompt=self.prompt, order=order, request=self.request, answer=answer)

    def take(self, sampled: Sampled) -> bool:
        """The next token. Returns whether the answer ends with it."""
        self.tokens.append(sampled.token)
        text, reason = self._read(sampled.token)
        result = Result(self.answer, sampled.token, sampled.logprob, sampled.top, text, reason)
        if reason:
            self.request.generations.remove(self)
        else:
            self.prepare()
        self.request.put(result)
        return reason is not None

    def prepare(self) -> None:
        """Lets a mask that can do so compute what may come next while the model computes."""
        prepare = getattr(self.sampling.mask, "prepare", None)
        if prepare is not None:
            prepare(self.tokens[self.prompt :].tolist())

    def end(self, reason: FinishReason, error: str | None = None) -> None:
        """The answer, or all it stands for, ends without another token."""
        self.request.generations.remove(self)
        if self.request.beams is not None:  # the last one speaks for all
            if not self.request.generations:
                self.request.end(range(self.sampling.n), reason, error)
            return
        text = "" if self.text is None else self.text.rest()
        self.request.end(range(self.answer, self.answer + self.width), reason, error, text)

    def _read(self, token: int) -> tuple[str, FinishReason | None]:
        """What a token adds to the text, and whether it is the last one."""
        text = ""
        reason: FinishReason | None = None
        if token in self.request.ends:
            reason = "stop"
        elif self.text is not None:
            text, stopped = self.text.add(token)
            if stopped:
                return text, "stop"
        if reason is None and len(self.tokens) == self.request.limit:
            reason = "length"
        if reason and self.text is not None:
            text += self.text.rest()
        return text, reason


def token_ids(tokens: Sequence[int], vocabulary: int) -> "array[int]":
    """The ids of a prompt; ValueError if they are none."""
    try:
        ids = array("q", tokens)
    except (TypeError, OverflowError):
        raise ValueError(f"a prompt has ids of tokens, not {tokens!r}") from None
    if not ids:
        raise ValueError("a prompt has one token or more")
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise ValueError(f"tokens are 0 … {vocabulary - 1}, not {min(ids)} … {max(ids)}")
    return ids


def check_request(
    sampling: Sampling, priority: int, deadline: float | None, vocabulary: int, max_sequences: int
) -> None:
    """ValueError if a model with this vocabulary, and that many answers at a time, cannot do what is asked for."""
    for name, ids in (("stop_tokens", sampling.stop_tokens), ("logit_bias", sampling.logit_bias)):
        if ids and max(ids) >= vocabulary:
            raise ValueError(f"{name}: tokens are 0 … {vocabulary - 1}, not {max(ids)}")
    if sampling.computed > max_sequences:
        raise ValueError(f"{sampling.computed} answers at a time cannot be computed; {max_sequences} can")
    if not isinstance(priority, int):
        raise ValueError(f"priority is an integer, not {priority!r}")
    if deadline is not None and not (isinstance(deadline, int | float) and not math.isnan(deadline)):
        raise ValueError(f"deadline is a time in seconds, not {deadline!r}")
