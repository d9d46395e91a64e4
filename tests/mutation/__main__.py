"""`python -m tests.mutation [deca] [arrays]`: see `--help`."""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from tests.mutation.constants import Constant
from tests.mutation.constants import constants as constants_of
from tests.mutation.mutant import preload, start, stop

SOURCE = Path(__file__).parents[2] / "src/tilepress"
DECLARED = "tests/paper/test_evidence.py::test_declared_cells_are_there"
PARTS = {  # simulator → files whose constants are changed, tests that should notice, and those that run if they do not
    "deca": (
        ["simulate/deca/*.py", "roofsurface/decompressors.py", "hardware/machines/spr-*.yaml"],
        ["tests/simulate/deca/test_parameters.py", "tests/simulate/deca/test_area.py",
         "tests/simulate/deca/test_dram.py", "tests/roofsurface/test_decompressors.py", "tests/hardware"],
        ["tests/simulate/deca", "tests/roofsurface", "tests/paper/deca", DECLARED],
    ),
    "arrays": (
        ["simulate/arrays/*.py", "hardware/technology.py", "hardware/accelerators/*.yaml"],
        ["tests/simulate/arrays/test_constants.py", "tests/hardware/test_accelerator_constants.py",
         "tests/simulate/arrays/test_synthesised.py"],
        ["tests/hardware", "tests/simulate/arrays", "tests/paper/anda/test_hardware.py",
         "tests/paper/harmonia/test_hardware.py", DECLARED],
    ),
}  # fmt: skip
PATIENCE = 4  # times what the tests take unchanged: a change that makes them hang is noticed, too


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("simulators", nargs="*", choices=[*PARTS, []], help="all if none is named")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=90.0, help="per cent that must be noticed")
    parser.add_argument("--match", default="", help="only constants whose file, name or value has this in it")
    parser.add_argument("--sample", type=int, help="so many constants of a simulator, drawn at random, and not all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--outcomes", type=Path, help="what was noticed, line by line: the same command goes on there")
    options = parser.parse_args()
    preload()
    scores = [_score(name, options) for name in options.simulators or PARTS]
    return 0 if min(scores) >= options.least else 1


def _score(simulator: str, options: argparse.Namespace) -> float:
    patterns, *tests = PARTS[simulator]
    paths = sorted(path for pattern in patterns for path in SOURCE.glob(pattern))
    all_constants = [one for path in paths for one in constants_of(path) if options.match in str(one)]
    total = len(all_constants)
    if options.sample is not None and options.sample < total:
        all_constants = random.Random(options.seed).sample(all_constants, options.sample)
    outcomes = Outcomes(options.outcomes)
    left = [one for one in all_constants if str(one) not in outcomes.noticed]
    begin = time.monotonic()
    if left and os.waitpid(start(None, tests, False), 0)[1]:
        sys.exit(f"{simulator}: the tests fail before anything is changed: {' '.join(chain(*tests))}")
    limit = PATIENCE * options.jobs * (time.monotonic() - begin)
    _try_all(left, tests, _compiled(paths), limit, options.jobs, outcomes)
    killed = sum(outcomes.noticed[str(one)] for one in all_constants)
    score = 100 * killed / len(all_constants) if all_constants else 100.0
    drawn = f", drawn from {total}" if len(all_constants) < total else ""
    print(
        f"{simulator}: {killed} of {len(all_constants)} changed constants{drawn} are noticed, {score:.1f} %", flush=True
    )
    return score


def _compiled(paths: Iterable[Path]) -> set[str]:
    """Files that numba compiles, and those whose names such files import: what was compiled holds their constants."""
    compiled = {path for path in paths if path.suffix == ".py" and "njit" in path.read_text("utf-8")}
    texts = [path.read_text("utf-8") for path in compiled]
    imported = {path for path in paths if any(f"from .{path.stem} import" in text for text in texts)}
    return {str(path) for path in compiled | imported}


class Outcomes:
    """Constant, as it is printed → whether its change was noticed; in a file too, if one is given."""

    def __init__(self, path: Path | None) -> None:
        lines = path.read_text("utf-8").splitlines() if path is not None and path.exists() else []
        self.noticed = {name: word == "noticed" for word, _, name in (line.partition(": ") for line in lines)}
        self._path = path

    def add(self, constant: Constant, noticed: bool) -> None:
        self.noticed[str(constant)] = noticed
        if not noticed:
            print(f"  not noticed: {constant}", flush=True)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{'noticed' if noticed else 'not noticed'}: {constant}\n")


def _try_all(
    constants: Sequence[Constant],
    tests: Sequence[Sequence[str]],
    compiled: set[str],
    limit: float,
    jobs: int,
    outcomes: Outcomes,
) -> None:
    waiting, running = list(reversed(constants)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            one = waiting.pop()
            running[start(one, tests, str(one.path) in compiled)] = one, time.monotonic()
        for child, (one, begin) in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del running[child]
                outcomes.add(one, noticed=bool(status))
            elif time.monotonic() - begin > limit:
                stop(child)
        if sys.stderr.isatty():
            print(f"\r{len(constants) - len(waiting)} of {len(constants)}", end=" ", file=sys.stderr, flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
