"""Calls of tools in what a model writes, in the syntaxes of several families.

Hermes and Qwen write `<tool_call>{"name": …, "arguments": …}</tool_call>`, once for each call; Mistral
`[TOOL_CALLS][{…}, {…}]`, or `[TOOL_CALLS]name[ARGS]{…}`; Llama 3 a whole answer `{"name": …, "parameters": …}`, several
of them with `;` between. An answer that `tool_choice` forces is an array of calls.
"""

import json
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

_HERMES, _MISTRAL, _LLAMA = "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"
_MARKS = (_HERMES, _MISTRAL, _LLAMA)
_NAMED = re.compile(r"([\w.-]+)(?:\[CALL_ID\]\w+)?\[ARGS\]")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Call:
    """arguments: JSON."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")

    @property
    def body(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class ToolReader:
    """Divides an answer, as it comes, into text and calls. What may be a call is held back until the answer ends.

    Args:
        names: of the tools; calls of others are text.
        several: whether calls after the first one count.
    """

    def __init__(self, names: Collection[str], several: bool = True) -> None:
        self._names, self._several = names, several
        self._given = False
        self._held = ""

    def add(self, text: str) -> str:
        """Text that can be given out now."""
        self._held += text
        cut = self._first_mark()
        given, self._held = self._held[:cut], self._held[cut:]
        self._given = self._given or bool(given.strip())
        return given

    def end(self) -> tuple[str, list[Call]]:
        """What was held back: a text or calls."""
        calls = parse_calls(self._held, self._names)
        return ("", calls if self._several else calls[:1]) if calls else (self._held, [])

    def _first_mark(self) -> int:
        """Where a call begins, or may do so."""
        if not self._given and self._held.lstrip()[:1] in ("{", "[", ""):
            return 0
        places = [place for mark in _MARKS if (place := self._held.find(mark)) >= 0]
        begun = max(_begun(self._held, mark) for mark in _MARKS)
        return min(places, default=len(self._held) - begun)


def parse_calls(text: str, names: Collection[str]) -> list[Call]:
    """All calls of a text that begins with one; none if it has anything else."""
    text = text.strip()
    if text.startswith(_HERMES):
        calls = _hermes(text)
    elif text.startswith(_MISTRAL):
        calls = _mistral(text.removeprefix(_MISTRAL).lstrip())
    else:
        calls = _objects(text.removeprefix(_LLAMA))
    found = [_call(one) for one in calls or []]
    return [call for call in found if call] if found and all(call and call.name in names for call in found) else []


def _hermes(text: str) -> list[Any] | None:
    """The last end may be missing, where an answer was too long."""
    pieces = [piece.strip().removesuffix("</tool_call>") for piece in text.split(_HERMES)[1:]]
    calls = [_objects(piece) for piece in pieces]
    return None if None in calls else [one for some in calls for one in some or []]


def _mistral(text: str) -> list[Any] | None:
    if not _NAMED.match(text):
        return _objects(text)
    calls = []
    while match := _NAMED.match(text):
        value, end = _value(text[match.end() :])
        calls.append({"name": match[1], "arguments": value})
        text = text[match.end() + end :].lstrip().removeprefix(_MISTRAL).lstrip()
    return None if text else calls


def _objects(text: str) -> list[Any] | None:
    """JSON values one after another, arrays as what they hold; None if there is anything else."""
    found: list[Any] = []
    text = text.strip()
    while text:
        value, end = _value(text)
        if not end:
            return None
        found += value if isinstance(value, list) else [value]
        text = text[end:].lstrip().removeprefix(";").lstrip()
    return found


def _value(text: str) -> tuple[Any, int]:
    """The JSON that a text begins with, and its characters; 0 if there is none."""
    skipped = len(text) - len(text.lstrip())
    try:
        value, end = _DECODER.raw_decode(text, skipped)
    except (ValueError, RecursionError):
        return None, 0
    return value, end


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return Call(value["name"], arguments)
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None


def _begun(text: str, mark: str) -> int:
    """Characters at the end of a text that a mark begins with."""
    return next((length for length in range(len(mark) - 1, 0, -1) if text.endswith(mark[:length])), 0)
