"""The command line: one file a subcommand, parsing and printing only."""

import os
import re
import signal
import sys
from typing import Any

from .._extras import MissingExtraError
from .ascii import make_safe

__all__ = ["main"]

DEBUG = "TILEPRESS_DEBUG"
LONGEST = 1000  # characters of an error
EXPECTED = (ValueError, OSError, RuntimeError, MemoryError, MissingExtraError)  # their text says what to do


def main() -> None:
    """Run the command line. What the user can mend is one line on standard error and exit code 1, with the traceback
    only if TILEPRESS_DEBUG is set; an interrupt is one line and exit code 130, from the first moment on."""
    interrupts = _recorded_interrupts()
    make_safe(sys.stdout)
    make_safe(sys.stderr)
    try:
        from .app import run

        run()
    except Exception as error:
        if interrupts:  # which a library took for a failure of its own, in the middle of an import
            _say_interrupted()
        if os.environ.get(DEBUG) or not isinstance(error, EXPECTED):
            raise
        print(f"tilepress: error: {_words(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        _say_interrupted()


def _say_interrupted() -> None:
    print("tilepress: interrupted", file=sys.stderr)
    sys.exit(130)


def _recorded_interrupts() -> list[int]:
    """A list that every interrupt is added to, beside being raised as ever."""
    interrupts: list[int] = []

    def record(number: int, frame: Any) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, record)
    return interrupts


def _words(error: Exception) -> str:
    """On one line. Without the number that a system's error has."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    match = re.search(r"DefaultCPUAllocator: .*you tried to allocate (\d+) bytes", text)  # torch's, a RuntimeError
    if match or isinstance(error, MemoryError):
        detail = f"{int(match[1]) / 1e9:.1f} GB more were asked for" if match else text
        text = (
            f"there is not enough memory{f' ({detail})' if detail else ''}: take a smaller model, or end other programs"
        )
    return " ".join(text.split())[:LONGEST]
