"""A worker process of a crew: pickled calls come on standard input, from the process that started it alone, and pickled
answers go out on standard output."""

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .host import Host
from .local_crew import PROTOCOL
from .work import reason


def main() -> None:
    """Until standard input ends, which it does when the command's own process does."""
    host = Host()
    ended = (BrokenPipeError, EOFError, pickle.UnpicklingError)
    with suppress(*ended), os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what libraries print is no answer
        while True:
            method, arguments = pickle.load(sys.stdin.buffer)
            pickle.dump(_answer(host, method, arguments), out, PROTOCOL)
            del arguments
            out.flush()


def _answer(host: Host, method: str, arguments: Sequence[Any]) -> tuple[Exception | None, Any]:
    try:
        return None, getattr(host, method)(*arguments)
    except Exception as error:  # whatever it is: it is raised again where the call was made
        return _portable(error), None


def _portable(error: Exception) -> Exception:
    """The error without its traceback; in words where it cannot be sent."""
    try:
        return pickle.loads(pickle.dumps(error.with_traceback(None)))  # type: ignore[no-any-return]
    except Exception:
        return RuntimeError(reason(error))


if __name__ == "__main__":
    main()
