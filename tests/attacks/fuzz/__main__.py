"""`python -m tests.attacks.fuzz [READER…] --cases N --seed S`: hostile files for every reader.

N cases in all, divided among the readers by their shares, at least 8 each. Exit code 1 if anything failed; the files
that did it lie under build/fuzz.
"""

import argparse
import json
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers are forked, and threads do not outlive a fork
os.environ.setdefault("OMP_NUM_THREADS", "1")

from .driver import FOUND, fuzz
from .reader import TARGETS

FEWEST = 8
COLUMNS = (
    "reader",
    "cases",
    "refused",
    "accepted",
    "errors",
    "unseen",
    "bombs",
    "crashes",
    "hangs",
    "slowest",
    "largest",
)


def main() -> int:
    options = _options()
    names = options.readers or list(TARGETS)
    whole, tallies = sum(TARGETS[name].share for name in names), {}
    shares = ", ".join(f"{name} {TARGETS[name].share / whole:.1%}" for name in names)
    _say(options, f"seed {options.seed}, {options.cases:,} cases, shared by the speed of readers: {shares}")
    _say(options, _row(COLUMNS))
    for name in names:
        start = time.monotonic()
        tally = fuzz(name, _cases(options.cases, TARGETS[name].share / whole, len(names)), options.seed, options.first)
        tallies[name] = {"cases": tally.refused + tally.accepted + tally.errors + tally.crashes + tally.hangs}
        tallies[name] |= tally.as_dict() | {"seconds": time.monotonic() - start}
        _say(options, _row(_cells(name, tallies[name])))
    if options.json:
        print(json.dumps(tallies, indent=2))
    return _outcome(options, tallies)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.attacks.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(TARGETS)}; all if none is given")
    parser.add_argument("--cases", type=int, default=10_000, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each reader")
    parser.add_argument("--json", action="store_true", help="print counts as JSON and nothing else")
    options = parser.parse_args()
    unknown = [name for name in options.readers if name not in TARGETS]
    if unknown:
        parser.error(f"there is no reader {unknown[0]}; there are {', '.join(TARGETS)}")
    return options


def _cases(whole: int, share: float, readers: int) -> int:
    return whole if readers == 1 else max(FEWEST, round(whole * share))


def _cells(name: str, counts: dict[str, float]) -> tuple[str, ...]:
    numbers = [f"{counts[column]:,}" for column in COLUMNS[1:-2]]
    return (name, *numbers, f"{counts['slowest'] * 1e3:,.0f} ms", f"{counts['largest'] / 2**20:,.0f} MB")


def _row(cells: tuple[str, ...]) -> str:
    return f"{cells[0]:10}" + "".join(f"{cell:>11}" for cell in cells[1:])


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.json:
        print(text, flush=True)


def _outcome(options: argparse.Namespace, tallies: dict[str, dict[str, float]]) -> int:
    bad = {name: counts for name, counts in tallies.items() if any(counts[key] for key in COLUMNS[4:9])}
    for name in bad:
        kinds = sorted(path.name for path in (FOUND / name).iterdir() if path.is_dir())
        print(f"{name}: see {FOUND / name}: {', '.join(kinds)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
