"""What an answer has to look like: `response_format` and `tool_choice` to the engine's grammars."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..engine import Engine
from ..engine.grammar import Grammar
from .errors import ApiError, invalid
from .limits import FORM_BYTES
from .requests import ChatRequest, GenerationBody, Tool, ToolNamed

SECONDS = 10.0  # that a grammar may take
_KEPT = 32  # grammars of a model
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="tilepress-forms")
_COMPACT = {"whitespace_flexible": False}  # models may else write blanks for ever
Schema = Mapping[str, Any]


class Forms:
    """Grammars for one model, made once each."""

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known = {"vocabulary": engine.runner.vocabulary, "eos": sorted(engine.eos)}
        self._grammars: OrderedDict[str, Grammar] = OrderedDict()

    async def of(self, asked: GenerationBody) -> Grammar | None:
        """None for any text. ApiError 400 for a schema that is none, admits nothing, or takes too long."""
        param, schema = _schema(asked)
        if schema is None:
            return None
        text = json.dumps({"x-guidance": _COMPACT, **schema})
        if len(text) > FORM_BYTES:
            raise invalid(param, f"the schema has more than {FORM_BYTES} bytes")
        if text not in self._grammars:
            self._grammars[text] = await self._make(param, text)
            if len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(text)
        return self._grammars[text]

    async def _make(self, param: str, text: str) -> Grammar:
        made = asyncio.get_running_loop().run_in_executor(_THREADS, self._grammar, text)
        made.add_done_callback(_ignore)
        try:
            return await asyncio.wait_for(asyncio.shield(made), SECONDS)
        except TimeoutError:
            raise invalid(param, f"the schema takes more than {SECONDS:g} s: give a simpler one") from None
        except ValueError as error:
            raise _refused(param, error) from None

    def _grammar(self, text: str) -> Grammar:
        """ValueError if no token can begin an answer."""
        grammar = Grammar.json_schema(text, self._tokenizer, **self._known)
        if not bool(grammar([]).any()):
            raise ValueError("no answer can follow it")
        return grammar


def _schema(asked: GenerationBody) -> tuple[str, Schema | None]:
    """And the request's field that has it."""
    calls = _calls(asked) if isinstance(asked, ChatRequest) else None
    if calls is not None:
        return "tool_choice", calls
    form = asked.response_format
    if form is None or form.type == "text":
        return "response_format", None
    return "response_format", {"type": "object"} if form.json_schema is None else form.json_schema.schema_


def _calls(asked: ChatRequest) -> Schema | None:
    """Of the calls that an answer has to be; None if it need not be calls."""
    choice, tools = asked.tool_choice, asked.tools or []
    if choice in (None, "none", "auto"):
        return None
    if isinstance(choice, ToolNamed):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
    if not tools:
        raise invalid("tool_choice", "there is no such tool in tools")
    calls = [_call(tool.function.name, tool.function.parameters) for tool in tools]
    most = 1 if isinstance(choice, ToolNamed) or asked.parallel_tool_calls is False else 8
    array = {"type": "array", "items": {"anyOf": calls}, "minItems": 1, "maxItems": most}
    return array | {key: _definitions(tools, key) for key in ("$defs", "definitions")}


def _definitions(tools: list[Tool], key: str) -> Schema:
    """What the tools' parameters refer to, which has to be in the whole schema."""
    all_of_them: dict[str, Any] = {}
    for tool in tools:
        own = (tool.function.parameters or {}).get(key, {})
        if not isinstance(own, dict) or any(all_of_them.get(name, one) != one for name, one in own.items()):
            raise invalid("tools", f"{key} of {tool.function.name} are none, or contradict those of another tool")
        all_of_them |= own
    return all_of_them


def _call(name: str, parameters: Schema | None) -> Schema:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"type": "object"} if parameters is None else parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _refused(param: str, error: ValueError) -> ApiError:
    """In one line: llguidance tells all that it knows."""
    first = str(error).strip().splitlines() or ["it cannot be used"]
    return invalid(param, f"answers cannot follow the schema: {first[0][:300]}")


def _ignore(made: "asyncio.Future[Grammar]") -> None:
    if not made.cancelled():
        made.exception()
