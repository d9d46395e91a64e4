"""Server-sent events."""

import json
from typing import Any


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n\n"


def is_opening(written: bytes) -> bool:
    """Whether an event of ours comes before the first token: that of a chat, which says who speaks."""
    return b'"delta":{"role":' in written  # quotes in a text have backslashes
