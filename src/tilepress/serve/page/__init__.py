"""The chat page: one HTML file that needs nothing but itself and the API."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template

from starlette.responses import HTMLResponse

_SCRIPTS = ("server.js", "words.js", "answer.js", "page.js")


def chat_page() -> HTMLResponse:
    return HTMLResponse(_page(), headers=_headers())


@cache
def _page() -> str:
    return Template(_read("page.html")).substitute(style=_style(), script=_script())


@cache
def _headers() -> dict[str, str]:
    """A browser runs this very script, and lets it ask this server alone."""
    policy = {
        "default-src": "'none'",
        "script-src": _hash(_script()),
        "style-src": _hash(_style()),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def _style() -> str:
    return _read("page.css")


def _script() -> str:
    return "\n".join(map(_read, _SCRIPTS))


def _read(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
