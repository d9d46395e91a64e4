"""`/v1/completions`."""

from collections.abc import Sequence
from typing import Any

from .deltas import Delta
from .errors import invalid
from .job import Choice, Job
from .library import Served
from .limits import Limits
from .logprobs import Logprobs
from .prompts import Prompt, text_prompts
from .requests import CompletionRequest
from .sampling import check_fit, completion_sampling


async def completion_job(served: Served, asked: CompletionRequest, limits: Limits) -> Job:
    """ApiError 400 if it cannot be done."""
    if asked.suffix:
        raise invalid("suffix", "text is added at the end only: leave suffix out")
    if asked.echo and asked.logprobs is not None:
        raise invalid("echo", "tokens of prompts have no logprobs here: leave echo or logprobs out")
    count = 1 if isinstance(asked.prompt, str) or isinstance(asked.prompt[0], int) else len(asked.prompt)
    sampling = completion_sampling(asked, limits, count, await served.forms.of(asked))
    check_fit(sampling, served.engine)
    prompts = await text_prompts(served, asked.prompt, "prompt")
    tokenizer = served.opened.tokenizer
    logprobs = None if asked.logprobs is None else Logprobs(tokenizer, served.engine.eos)
    echoes = _echoes(tokenizer, prompts, sampling.n) if asked.echo else []
    return Job(prompts, sampling, CompletionForm(echoes, logprobs))


def _echoes(tokenizer: Any, prompts: Sequence[Prompt], n: int) -> list[str]:
    """The prompt of each answer."""
    texts = [str(tokenizer.decode(prompt, skip_special_tokens=True)) for prompt in prompts]
    return [text for text in texts for _ in range(n)]


class CompletionForm:
    """echoes: what the answers begin with, if they have to begin with their prompts."""

    id_prefix = "cmpl"
    name = "text_completion"
    chunk_name = "text_completion"

    def __init__(self, echoes: Sequence[str], logprobs: Logprobs | None) -> None:
        self._echoes, self._logprobs = echoes, logprobs
        self._offsets: dict[int, int] = {}  # of the next token, by answer

    def opening(self) -> Sequence[Choice]:
        return [_piece(answer, text) for answer, text in enumerate(self._echoes)]

    def piece(self, delta: Delta) -> Choice:
        return _piece(delta.answer, delta.text, self._tokens(delta), delta.finish_reason)

    def whole(self, pieces: Sequence[Choice]) -> Choice:
        text = "".join(piece["text"] for piece in pieces)
        parts = [piece["logprobs"] for piece in pieces if piece["logprobs"]]
        logprobs = {key: [one for part in parts for one in part[key]] for key in parts[0]} if parts else None
        return _piece(pieces[-1]["index"], text, logprobs, pieces[-1]["finish_reason"])

    def _tokens(self, delta: Delta) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        offset = self._offsets.get(delta.answer, 0)
        logprobs = self._logprobs.completion(delta.results, offset)
        self._offsets[delta.answer] = offset + sum(map(len, logprobs["tokens"]))
        return logprobs


def _piece(answer: int, text: str, logprobs: Any = None, finish_reason: str | None = None) -> Choice:
    return {"index": answer, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
