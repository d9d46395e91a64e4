"""`/v1/chat/completions`."""

from collections.abc import Sequence
from typing import Any

from .deltas import Delta
from .job import Choice, Job
from .library import Served
from .limits import Limits
from .logprobs import Logprobs
from .prompts import chat_prompt, check_prompt
from .requests import ChatRequest
from .sampling import chat_sampling, check_fit
from .tools import ToolReader


async def chat_job(served: Served, asked: ChatRequest, limits: Limits) -> Job:
    """ApiError 400 if it cannot be done."""
    sampling = chat_sampling(asked, limits, await served.forms.of(asked))
    check_fit(sampling, served.engine)
    prompt = await chat_prompt(served, asked)
    check_prompt(served, prompt, "messages")
    logprobs = Logprobs(served.opened.tokenizer, served.engine.eos) if asked.logprobs else None
    return Job([prompt], sampling, ChatForm(sampling.n, logprobs), _readers(asked, sampling.n))


def _readers(asked: ChatRequest, answers: int) -> list[ToolReader] | None:
    if not asked.tools or asked.tool_choice == "none":
        return None
    names = {tool.function.name for tool in asked.tools}
    return [ToolReader(names, asked.parallel_tool_calls is not False) for _ in range(answers)]


class ChatForm:
    id_prefix = "chatcmpl"
    name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(self, answers: int, logprobs: Logprobs | None) -> None:
        self._answers, self._logprobs = answers, logprobs

    def opening(self) -> Sequence[Choice]:
        return [_piece(answer, {"role": "assistant", "content": ""}) for answer in range(self._answers)]

    def piece(self, delta: Delta) -> Choice:
        grown: dict[str, Any] = {"content": delta.text} if delta.text else {}
        if delta.calls:
            grown["tool_calls"] = [{"index": place, **call.body} for place, call in enumerate(delta.calls)]
        logprobs = None if self._logprobs is None else self._logprobs.chat(delta.results)
        return _piece(delta.answer, grown, logprobs, delta.finish_reason)

    def whole(self, pieces: Sequence[Choice]) -> Choice:
        deltas = [piece["delta"] for piece in pieces]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        text = "".join(delta.get("content", "") for delta in deltas)
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
        if calls:
            message["tool_calls"] = [{name: call[name] for name in ("id", "type", "function")} for call in calls]
        tokens = [token for piece in pieces if piece["logprobs"] for token in piece["logprobs"]["content"]]
        logprobs = None if self._logprobs is None else {"content": tokens, "refusal": None}
        last = pieces[-1]
        return {
            "index": last["index"],
            "message": message,
            "logprobs": logprobs,
            "finish_reason": last["finish_reason"],
        }


def _piece(answer: int, delta: dict[str, Any], logprobs: Any = None, finish_reason: str | None = None) -> Choice:
    return {"index": answer, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
