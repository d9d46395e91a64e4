"""`-` in the place of a file: standard input, in UTF-8 whatever the locale is."""

import sys
from collections.abc import Sequence
from pathlib import Path

MARK = "-"
NAME = "standard input"
LARGEST = 256_000_000  # bytes


def is_stdin(path: str | Path | None) -> bool:
    return path is not None and str(path) == MARK


def read_stdin(what: str) -> str:
    """All of it, with the line ends of any other text file. `what` is expected: "a recipe", say."""
    if sys.stdin.isatty():
        print(f"tilepress: reading {what} from {NAME}; Ctrl-D ends it", file=sys.stderr)
    data = sys.stdin.buffer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"{NAME} has more than {LARGEST / 1e6:.0f} MB: put {what} into a file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{NAME} is not text in UTF-8 (byte {error.start} is none of it)") from error
    if not text.strip():
        raise ValueError(f"{NAME} is empty, and {what} was to come from there")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def prompts(given: Sequence[str]) -> list[str]:
    """With what standard input holds in the place of `-`, without the line feed at its end."""
    if list(given).count(MARK) > 1:
        raise ValueError(f"{NAME} can be one of the prompts only: give {MARK} once")
    return [read_stdin("a prompt").removesuffix("\n") if is_stdin(one) else one for one in given]
