"""Which replica a request goes to: one that has computed the same beginning, while its load allows.

Rendezvous hashing with bounded loads: a beginning ranks the replicas by a hash of both, and goes to the first one with
room. A replica that comes or goes changes the place of its own share of beginnings only, and routers that know nothing
of each other agree.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json, to_json

CHARACTERS = 1024  # of a beginning
OVER_MEAN = 1.25  # a replica has room below so many times the mean load …
SLACK = 4  # … and so many requests more, which an engine computes together at little cost
_OPENERS = ("system", "developer")


def beginning(body: bytes) -> str:
    """What requests have in common that shall meet at one replica: the model, and the first characters of a prompt, or
    of a chat up to its first turn, which stays the same while the chat grows. Empty if there is none."""
    try:
        asked = from_json(body)
    except ValueError:
        return ""
    if not isinstance(asked, dict):
        return ""
    text = _opening(asked["messages"]) if "messages" in asked else _first(asked.get("prompt"))
    return f"{asked.get('model')}:{text[:CHARACTERS]}" if text else ""


def ranked(key: str, loads: Mapping[str, int]) -> list[str]:
    """Replicas in the order in which they are to be asked. loads: requests in progress, by replica. Those with room
    come first, by the key's own order if there is a key; then the others, the least loaded first."""
    most = OVER_MEAN * sum(loads.values()) / max(len(loads), 1) + SLACK
    by_key = sorted(loads, key=lambda name: _hash(key, name))
    by_load = sorted(by_key, key=lambda name: loads[name])
    roomy = [name for name in by_key if loads[name] < most] if key else []
    return [*roomy, *(name for name in by_load if name not in roomy)]


def _opening(messages: Any) -> str:
    """Instructions and the first turn."""
    if not isinstance(messages, list):
        return ""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    turn = next((place for place, role in enumerate(roles) if role not in _OPENERS), len(roles))
    return to_json(messages[: turn + 1]).decode()


def _first(prompt: Any) -> str:
    """A text as it is; tokens, and the first of several prompts, as JSON."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return _first(prompt[0])
    return prompt if isinstance(prompt, str) else to_json(prompt).decode() if prompt else ""


def _hash(key: str, name: str) -> bytes:
    return blake2b(f"{name}\0{key}".encode(errors="replace"), digest_size=8).digest()
