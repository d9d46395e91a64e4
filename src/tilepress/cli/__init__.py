"""The command line: one file a subcommand, parsing and printing only."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line. What the user can mend is one line on standard error and exit code 1, no traceback; an
    interrupt is one line and exit code 130, from the first moment on."""
    try:
        from .app import run

        run()
    except (ValueError, OSError, RuntimeError) as error:
        print(f"tilepress: error: {_words(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("tilepress: interrupted", file=sys.stderr)
        sys.exit(130)


def _words(error: Exception) -> str:
    """Without the number that a system's error has."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
