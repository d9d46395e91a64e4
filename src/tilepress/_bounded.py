"""Untrusted files: only regular ones are read, and only up to a size limit for their kind.

A path may lead to a device without an end, to a pipe that nobody writes to, or to a file that takes many times its size
once it is parsed.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

MB = 1_000_000


class UnreadableError(ValueError):
    """A file that is not read; the message says why, and does not name it."""


def open_ordinary(path: str | Path) -> BinaryIO:
    """An ordinary file to read from; UnreadableError if it is something else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # else opening a pipe waits for its writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError("it is not an ordinary file")
    return open(descriptor, "rb")


def read_bounded(path: str | Path, most: int) -> bytes:
    """The bytes of an ordinary file of at most `most` bytes; UnreadableError if it is something else, or larger."""
    with open_ordinary(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UnreadableError(f"it is larger than {most / MB:g} MB, the most that is read of such a file")
    return data


def read_bounded_text(path: str | Path, most: int) -> str:
    """Like `read_bounded`, decoded as UTF-8, with "\\n" at the end of each line."""
    try:
        text = read_bounded(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"it is not text in UTF-8 (byte {error.start} is none of it)") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_limit(described: int) -> int:
    """Most bytes of JSON that may describe `described` bytes of arrays. Parsed, it takes up to 30 times its size
    ("[[],[],[],…"), which stays below twice the size of both, plus 64 MB."""
    return 2 * MB + described // 16
