"""Long runs of hardware in Amaranth's simulator, beside the models; tests/rtl has short ones.

    python benchmarks/rtl.py                              100,000 vectors for each part; an hour
    python benchmarks/rtl.py --vectors 1000 --seed 7      fewer, and others

A vector is a product of DECA's lanes, or a vector operation of its element. What differs ends the run and is named.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the tests are

from tests.rtl.deca import jobs, lanes

from tilepress.rtl.deca import Parameters

ELEMENTS = ((8, 4), (16, 4), (32, 8), (64, 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for part in (_lanes, _elements):
        begin = time.monotonic()
        part(arguments.vectors, arguments.seed)
        print(f"{part.__name__.strip('_')}: {arguments.vectors} vectors, {time.monotonic() - begin:.0f} s, all equal")


def _lanes(vectors: int, seed: int) -> None:
    questions = [*lanes.corners(), *lanes.random(vectors, seed)]
    for question, answer in zip(questions, lanes.ask(questions), strict=True):
        assert answer == lanes.expected(question), question


def _elements(vectors: int, seed: int) -> None:
    for width, tables in ELEMENTS:
        parameters = Parameters(width, tables, tuple(jobs.FORMATS))
        jobs.assert_as_modelled(parameters, list(jobs.random_jobs(vectors // len(ELEMENTS), width, seed=seed)))


if __name__ == "__main__":
    main()
