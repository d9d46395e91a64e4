"""What a worker does with a batch, wherever it runs: in this process, in another, on another machine."""

import platform
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from .. import __version__
from .._errors import words
from .._extras import MissingExtraError
from ..records import Record, to_json

EXPECTED = (ValueError, OSError, RuntimeError, MissingExtraError)  # errors whose text says what was wrong
LONGEST = 500  # characters of a reason

Function = Callable[[Mapping[str, Any], str], Iterable[Record]]


def answer(call: Mapping[str, Any]) -> dict[str, Any]:
    """Of a `Batch.call`: one result a point, its records as text or why it failed; all of it is JSON."""
    if call["version"] != __version__:
        versions = f"tilepress {__version__}, and the command was started by {call['version']}"
        return {"refused": f"{platform.node()} has {versions}: install the same version on every machine"}
    module, _, name = call["function"].partition(":")
    function = getattr(import_module(module), name)
    return {"results": [_result(function, point, call["command"]) for point in call["points"]]}


def reason(error: Exception) -> str:
    """Why something failed, on one line."""
    text = words(error)
    if not isinstance(error, EXPECTED) or not text:
        text = f"{type(error).__name__}: {text}"
    return " ".join(text.split())[:LONGEST]


def _result(function: Function, point: Mapping[str, Any], command: str) -> dict[str, str]:
    try:
        return {"records": to_json(function(point, command))}
    except Exception as error:  # whatever it is: the other points shall run
        return {"failed": reason(error)}
