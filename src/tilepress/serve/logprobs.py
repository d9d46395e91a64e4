"""Log-probabilities of tokens, in OpenAI's two forms."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..engine import Result

_REPLACED = "\N{REPLACEMENT CHARACTER}"


class Logprobs:
    """Args:
    ends: ids that end an answer, which are no part of it.
    """

    def __init__(self, tokenizer: Any, ends: Collection[int]) -> None:
        self._tokenizer, self._ends = tokenizer, ends

    def chat(self, results: Iterable[Result]) -> dict[str, Any]:
        return {"content": [self._entry(result) for result in self._shown(results)], "refusal": None}

    def completion(self, results: Iterable[Result], offset: int) -> dict[str, Any]:
        """offset: characters of the answer before, by its tokens."""
        shown = self._shown(results)
        texts = [self._text(result.token) for result in shown]
        return {
            "tokens": texts,
            "token_logprobs": [result.logprob for result in shown],
            "top_logprobs": [{self._text(token): value for token, value in result.top} for result in shown],
            "text_offset": [offset + sum(map(len, texts[:place])) for place in range(len(texts))],
        }

    def _shown(self, results: Iterable[Result]) -> Sequence[Result]:
        return [
            result
            for result in results
            if result.token is not None and not (result.finish_reason == "stop" and result.token in self._ends)
        ]

    def _entry(self, result: Result) -> dict[str, Any]:
        top = [self._one(token, value) for token, value in result.top]
        return self._one(result.token, result.logprob) | {"top_logprobs": top}

    def _one(self, token: int | None, logprob: float | None) -> dict[str, Any]:
        text = self._text(token)
        return {"token": text, "logprob": logprob, "bytes": None if _REPLACED in text else list(text.encode())}

    def _text(self, token: int | None) -> str:
        return str(self._tokenizer.decode([token]))
