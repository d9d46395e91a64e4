"""Chats and texts to tokens."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..models.chat import ChatTemplateError
from .errors import ApiError, invalid
from .library import Served
from .requests import ChatRequest, Message, Text, Tokens, Tool

Prompt = Sequence[int]


async def chat_prompt(served: Served, asked: ChatRequest) -> Prompt:
    """The conversation as the model's chat template puts it, with tools where it may call some."""
    tools = None if asked.tool_choice == "none" else asked.tools
    return await asyncio.to_thread(chat_tokens, served, asked.messages, tools)


async def text_prompts(served: Served, given: Text | Tokens | list[Text] | list[Tokens], param: str) -> list[Prompt]:
    """One or several, each a text or tokens."""
    several: list[Any] = [given] if isinstance(given, str) or isinstance(given[0], int) else list(given)
    prompts = [await text_tokens(served, one) if isinstance(one, str) else one for one in several]
    for prompt in prompts:
        check_prompt(served, prompt, param)
    return prompts


async def text_tokens(served: Served, text: str, special: bool = True) -> Prompt:
    def tokenize() -> Prompt:
        return _encode(served, text, special)

    return await asyncio.to_thread(tokenize)


def chat_tokens(served: Served, messages: Sequence[Message], tools: Sequence[Tool] | None) -> Prompt:
    tokenizer = served.opened.tokenizer
    if tokenizer.chat_template is None:
        raise invalid("messages", "the model has no chat template: ask /v1/completions")
    options = {"tools": [tool.model_dump(exclude_none=True) for tool in tools]} if tools else {}
    try:
        text = served.renderer.render(tokenizer, [_turn(message) for message in messages], **options)
    except ChatTemplateError as error:
        raise invalid("messages", str(error)) from None
    return _encode(served, text, False)


def check_prompt(served: Served, prompt: Prompt, param: str) -> None:
    """ApiError 400 for tokens that the model does not know, none at all, or too many."""
    engine = served.engine
    if not prompt:
        raise invalid(param, "the prompt is empty")
    if len(prompt) >= engine.longest:
        raise too_long(param, len(prompt), engine.longest - 1)
    if max(prompt) >= engine.runner.vocabulary:
        raise invalid(param, f"tokens are 0 … {engine.runner.vocabulary - 1}, not {max(prompt)}")


def too_long(param: str, tokens: int, most: int) -> ApiError:
    message = f"the prompt has {tokens} tokens, and there is room for {most}"
    return invalid(param, message, "context_length_exceeded")


def _encode(served: Served, text: str, special: bool) -> Prompt:
    tokens: list[int] = served.opened.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
    return tokens


def _turn(message: Message) -> Mapping[str, Any]:
    """As chat templates want it: contents are texts, and arguments of calls objects."""
    turn = message.model_dump(exclude_none=True)
    turn["role"] = "system" if message.role == "developer" else message.role
    if isinstance(message.content, list):
        turn["content"] = "".join(part.text for part in message.content)
    turn.setdefault("content", "")
    for call in turn.get("tool_calls", ()):
        call["function"]["arguments"] = _arguments(call["function"]["arguments"])
    return turn


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
