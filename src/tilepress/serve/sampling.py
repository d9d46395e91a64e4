"""How an answer is sampled: OpenAI's words to the engine's."""

from typing import Any

from ..engine import Engine, Sampling
from .errors import invalid
from .limits import Limits
from .requests import ChatRequest, CompletionRequest, GenerationBody

_COMPLETION_TOKENS = 16  # of OpenAI's completions, where none are asked for
_SAME_NAMES = ("top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


def chat_sampling(asked: ChatRequest, limits: Limits, mask: Any) -> Sampling:
    if asked.top_logprobs is not None and not asked.logprobs:
        raise invalid("top_logprobs", "top_logprobs needs logprobs to be true")
    most = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
    return Sampling(max_tokens=most, logprobs=logprobs, mask=mask, **_shared(asked, limits, 1))


def completion_sampling(asked: CompletionRequest, limits: Limits, prompts: int, mask: Any) -> Sampling:
    most = _COMPLETION_TOKENS if asked.max_tokens is None else asked.max_tokens
    n, best_of = asked.n or 1, asked.best_of
    if best_of is not None and best_of < n:
        raise invalid("best_of", f"best_of, {best_of}, is less than n, {n}")
    if best_of is not None and best_of * prompts > limits.answers:
        raise invalid("best_of", f"a request has at most {limits.answers} answers")
    if best_of is not None and best_of > n and asked.stream:
        raise invalid("best_of", "the best answers are known when all are finished: they cannot be streamed")
    shared = _shared(asked, limits, prompts)
    return Sampling(max_tokens=most, best_of=best_of, logprobs=asked.logprobs, mask=mask, **shared)


def check_fit(sampling: Sampling, engine: Engine) -> None:
    """ApiError 400 where an engine cannot do it."""
    if any(token >= engine.runner.vocabulary for token in sampling.logit_bias):
        raise invalid("logit_bias", f"tokens are 0 … {engine.runner.vocabulary - 1}")
    if sampling.computed > engine.scheduler.max_sequences:
        raise invalid("n", f"at most {engine.scheduler.max_sequences} answers are computed at a time")


def _shared(asked: GenerationBody, limits: Limits, prompts: int) -> dict[str, Any]:
    n = asked.n or 1
    if n * prompts > limits.answers:
        raise invalid("n", f"a request has at most {limits.answers} answers, not {n * prompts}")
    if asked.stream_options is not None and not asked.stream:
        raise invalid("stream_options", "stream_options needs stream to be true")
    given = {name: getattr(asked, name) for name in _SAME_NAMES if getattr(asked, name) is not None}
    return {
        **given,
        "n": n,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "top_k": max(0, asked.top_k or 0),
        "logit_bias": _bias(asked),
        "stop": [asked.stop] if isinstance(asked.stop, str) else asked.stop or [],
        "seed": None if asked.seed is None else asked.seed % (1 << 64),
        "ignore_eos": bool(asked.ignore_eos),
    }


def _bias(asked: GenerationBody) -> dict[int, float]:
    keys = asked.logit_bias or {}
    if not all(key.isascii() and key.isdecimal() and len(key) <= 10 for key in keys):
        raise invalid("logit_bias", "keys of logit_bias are ids of tokens")
    return {int(key): bias for key, bias in keys.items()}
