"""What a caller of the engine holds: answers as they grow."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]


@dataclass(frozen=True, slots=True)
class Result:
    """A token of an answer.

    answer: which one, of several. token: None if the answer ended without one more.
    logprob, top: see `Sampling.logprobs`.
    text: of this token, and of those before it whose text was held back.
    finish_reason: of the answer's last result; None before it.
    """

    answer: int
    token: int | None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None


@dataclass
class Answer:
    """One answer so far. error: what went wrong, if that is why it ended."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    error: str | None = None

    def add(self, result: Result) -> None:
        if result.token is not None:
            self.tokens.append(result.token)
        if result.logprob is not None:
            self.logprobs.append(result.logprob)
        self.text += result.text
        self.finish_reason = result.finish_reason


class Stream(Iterator[Result]):
    """Results of one request, to be iterated over; `tokens`, `text`, `finish_reason` and `error` are those of its
    first answer.

    Args:
        answers: how many there will be.
        wait: lets the engine work until a condition holds.
        cancel: ends the request.
    """

    def __init__(
        self,
        answers: int,
        wait: Callable[[Callable[[], bool]], None],
        cancel: Callable[[], None],
    ) -> None:
        self.answers = [Answer() for _ in range(answers)]
        self._results: deque[Result] = deque()
        self._wait, self._cancel = wait, cancel

    @property
    def tokens(self) -> list[int]:
        return self.answers[0].tokens

    @property
    def text(self) -> str:
        return self.answers[0].text

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.answers[0].finish_reason

    @property
    def error(self) -> str | None:
        return self.answers[0].error

    @property
    def finished(self) -> bool:
        """Whether all answers are."""
        return all(answer.finish_reason for answer in self.answers)

    def __next__(self) -> Result:
        self._wait(lambda: bool(self._results) or self.finished)
        if not self._results:
            raise StopIteration
        return self._results.popleft()

    def wait(self) -> "Stream":
        """Returns when all answers are finished; the results are still there to be iterated over."""
        self._wait(lambda: self.finished)
        return self

    def take(self) -> list[Result]:
        """Results that are there and were not given out yet; it waits for none."""
        return [self._results.popleft() for _ in range(len(self._results))]

    def cancel(self) -> None:
        """Ends all answers; what a step in progress computes for them is dropped."""
        self._cancel()

    def put(self, result: Result, error: str | None = None) -> None:
        """For the engine: the next result of an answer."""
        answer = self.answers[result.answer]
        answer.error = error
        self._results.append(result)
        answer.add(result)
