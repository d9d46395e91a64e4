"""A worker process: batches come as lines of JSON on standard input, answers go out on standard output."""

import json
import os
import signal
import sys
from contextlib import suppress

from .work import answer


def main() -> None:
    """Until standard input ends, which it does when the sweep's own process does. Told to stop, it cleans up."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # what libraries print is no answer
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
