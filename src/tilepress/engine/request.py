"""A request in the engine: its answers, and what is given out of them."""

from dataclasses import dataclass, field, replace

from .sampler import Sampled, mix
from .sampling import Sampling
from .scheduler import TokenSequence
from .stream import FinishReason, Result, Stream
from .text import Decode, TextStream


@dataclass(eq=False)
class Request:
    """What was submitted, and where its results go.

    seed: of all its answers. ends: tokens that end an answer.
    limit: tokens of prompt and answer at most. deadline: by the engine's clock.
    generations: answers that are computed.
    """

    sampling: Sampling
    seed: int
    ends: frozenset[int]
    limit: int
    deadline: float | None
    decode: Decode | None
    stream: Stream = field(init=False)
    generations: list["Generation"] = field(default_factory=list)
    _ranked: dict[int, list[tuple[Result, str | None]]] = field(default_factory=dict)

    def put(self, result: Result, error: str | None = None) -> None:
        """A result of an answer, to the stream at once, or when the best answers are known."""
        if self.sampling.computed == self.sampling.n:
            self.stream.put(result, error)
            return
        self._ranked.setdefault(result.answer, []).append((result, error))
        if sum(results[-1][0].finish_reason is not None for results in self._ranked.values()) == self.sampling.computed:
            self._put_best()

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
        priority, arrival, _ = self.order
        return [
            Generation(
                tokens=self.tokens[:],
                prompt=self.prompt,
                order=(priority, arrival, answer),
                request=self.request,
                answer=answer,
            )
            for answer in range(1, self.width)
        ]

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
