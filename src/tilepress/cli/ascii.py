"""Output where a terminal or a pipe takes ASCII only (LC_ALL=C): a near spelling, never an error."""

import codecs
import sys
import unicodedata
from typing import TextIO

ERRORS = "tilepress-ascii"
SPELLINGS = {
    "×": "x", "±": "+/-", "µ": "u", "μ": "u", "…": "...", "²": "2", "³": "3", "·": "*", "–": "-", "—": "-", "−": "-",
    "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≈": "~", "≠": "!=", "°": " degrees", "√": "sqrt", "∞": "infinity",
    "’": "'", "“": '"', "”": '"', "•": "*", "█": "#", "━": "-", "╸": "-", "╺": "-", "─": "-", "│": "|", "┃": "|",
    "\N{GREEK SMALL LETTER SIGMA}": "sigma", "\N{LEFT SINGLE QUOTATION MARK}": "'",
}  # fmt: skip
BOX = range(0x2500, 0x2580)  # boxes' corners and crossings


def make_safe(stream: TextIO) -> None:
    """What `stream` cannot encode is spelt in ASCII from now on. Bytes of names that are no text stay as they are."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=ERRORS)


def is_utf8(stream: TextIO) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        return codecs.lookup(encoding).name.startswith("utf")
    except LookupError:
        return False


def fitted(text: str) -> str:
    """As standard output will show it, so that its width is known."""
    if text.isascii() or is_utf8(sys.stdout):
        return text
    encoding = sys.stdout.encoding
    return text.encode(encoding, ERRORS).decode(encoding, "surrogateescape")


def spelling(character: str) -> str:
    """In ASCII; a question mark for what has no near spelling."""
    if character in SPELLINGS:
        return SPELLINGS[character]
    if ord(character) in BOX:
        return "+"
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain or "?"


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if 0xDC80 <= ord(character) <= 0xDCFF:  # a byte of a file's name that Python could not decode
        return bytes([ord(character) - 0xDC00]), error.start + 1
    return spelling(character), error.start + 1


codecs.register_error(ERRORS, _replace)
