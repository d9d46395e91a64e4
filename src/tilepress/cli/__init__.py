"""The command line: one file a subcommand, parsing and printing only."""

import os
import re
import signal
import sys
from types import FrameType

from .._errors import words
from .._extras import MissingExtraError
from .ascii import make_safe

__all__ = ["main"]

DEBUG = "TILEPRESS_DEBUG"
INTERRUPTED = "tilepress: interrupted"
LONGEST = 1000  # characters of an error
EXPECTED = (ValueError, OSError, RuntimeError, MemoryError, MissingExtraError)  # their text says what to do


def main() -> None:
    """Run the command line. What the user can mend is one line on standard error and exit code 1, with the traceback
    only if TILEPRESS_DEBUG is set; an interrupt is one line and exit code 130, from the first moment on."""
    _end_at_interrupts()
    make_safe(sys.stdout)
    make_safe(sys.stderr)
    try:
        from .app import run

        run()
    except Exception as error:
        if os.environ.get(DEBUG) or not isinstance(error, EXPECTED):
            raise
        print(f"tilepress: error: {_words(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        sys.exit(130)


def _end_at_interrupts() -> None:
    """Raised as ever, but in the middle of an import, where libraries take it for a failure of their own or drop it:
    there the process ends."""

    def end(number: int, frame: FrameType | None) -> None:
        outer = frame
        while outer:
            if outer.f_code.co_filename.startswith("<frozen importlib"):
                print(INTERRUPTED, file=sys.stderr, flush=True)
                os._exit(130)
            outer = outer.f_back
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


def _words(error: Exception) -> str:
    """On one line."""
    text = words(error)
    match = re.search(r"DefaultCPUAllocator: .*you tried to allocate (\d+) bytes", text)  # torch's, a RuntimeError
    if match or isinstance(error, MemoryError):
        detail = f"{int(match[1]) / 1e9:.1f} GB more were asked for" if match else text
        text = (
            f"there is not enough memory{f' ({detail})' if detail else ''}: take a smaller model, or end other programs"
        )
    return " ".join(text.split())[:LONGEST]
