"""Answers as they grow, piece by piece: what streams send, and whole answers are put together from."""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ..engine import Result
from .driver import Feed
from .errors import ApiError, internal, invalid, stopping, timed_out
from .tools import Call, ToolReader

_LOG = logging.getLogger(__name__)
_GRAMMAR_ERRORS = ("the mask failed", "no token is allowed")


@dataclass(frozen=True)
class Delta:
    """What an answer grows by. results: the tokens that came. finish_reason: OpenAI's, with its last piece."""

    answer: int
    text: str
    calls: Sequence[Call]
    results: Sequence[Result]
    finish_reason: str | None

    @property
    def says_something(self) -> bool:
        has_logprobs = self.results[0].logprob is not None
        return bool(self.text or self.calls or self.finish_reason or has_logprobs)


async def deltas(feed: Feed, readers: Sequence[ToolReader] | None) -> AsyncIterator[Delta]:
    """One for each answer that a step adds to; ApiError where one goes wrong. readers: one for each answer."""
    async for batch in feed.batches():
        by_answer: dict[int, list[Result]] = {}
        for answer, result in batch:
            by_answer.setdefault(answer, []).append(result)
        for answer, results in by_answer.items():
            delta = _delta(feed, answer, results, readers[answer] if readers else None)
            if delta.says_something:
                yield delta


def _delta(feed: Feed, answer: int, results: list[Result], reader: ToolReader | None) -> Delta:
    text, calls = "".join(result.text for result in results), list[Call]()
    reason: str | None = results[-1].finish_reason
    if reason not in (None, "stop", "length"):
        raise _failure(str(reason), feed.error(answer) or "")
    if reader is not None:
        text = reader.add(text)
        if reason is not None:
            rest, calls = reader.end()
            text, reason = text + rest, "tool_calls" if calls else reason
    return Delta(answer, text, calls, results, reason)


def _failure(reason: str, error: str) -> ApiError:
    if reason == "deadline":
        return timed_out()
    if reason == "cancelled":
        return stopping()
    if error.startswith(_GRAMMAR_ERRORS):
        return invalid("response_format", "the answer cannot go on as it has to")
    _LOG.error("an answer failed: %s", error)
    return internal()
