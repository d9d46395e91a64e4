"""API keys: who may ask."""

import hmac
from hashlib import sha256
from pathlib import Path

from .errors import ApiError

_SHORTEST = 8  # characters


class Keys:
    """By their hashes; without any, everybody may ask.

    Args:
        names: of keys, by key.
    """

    def __init__(self, names: dict[str, str] | None = None) -> None:
        self._names = {sha256(key.encode()).digest(): name for key, name in (names or {}).items()}

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Of a file, whose lines are `key` or `name:key`; empty ones, and those that begin with #, do not count."""
        names: dict[str, str] = {}
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            line = line.strip()
            if line and not line.startswith("#"):
                name, colon, key = line.partition(":")
                name, key = (name.strip(), key.strip()) if colon else (f"line {number}", line)
                if len(key) < _SHORTEST or not name or key in names:
                    raise ValueError(f"{path}, line {number}: give `key` or `name:key`, {_SHORTEST} characters, once")
                names[key] = name
        if not names:
            raise ValueError(f"{path} has no keys: give one a line")
        return cls(names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def name(self, authorization: str | None) -> str:
        """Whose key a header has. Every key is compared, whatever those before it gave."""
        if not self._names:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        digest = sha256(key.strip().encode(errors="replace")).digest()
        names = [name for known, name in self._names.items() if hmac.compare_digest(known, digest)]
        if scheme.lower() != "bearer" or not names:
            raise ApiError(401, "give a key that is known: Authorization: Bearer KEY", code="invalid_api_key")
        return names[0]
