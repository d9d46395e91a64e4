"""Long runs of hardware in Amaranth's simulator, beside the models: bits and cycles of every unit. tests/rtl has short
ones.

    python benchmarks/rtl.py                                         100,000 vectors a unit: hours on one CPU
    python benchmarks/rtl.py --workers 16 --seconds 420 --records FILE
    python benchmarks/rtl.py --vectors 1000 --seed 7 figna ifpu      fewer, others, of some units

A vector is what a unit takes in a cycle: a word, a column, a pair, a vector operation. Units are run in parts, each
with a seed of its own, those first that have fewer of their vectors done. What differs ends the run and is named, with
its seed. After `--seconds` no part begins. `--records FILE` keeps how many vectors were equal.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the tests are

import torch
from tests.rtl.anda import dots, rounds
from tests.rtl.deca import jobs, lanes
from tests.rtl.harmonia import conversions, keys, products
from tests.rtl.rivals import dots as rival_dots
from tests.rtl.rivals import halves, integers, quantisers

from tilepress import __version__
from tilepress.records import Record, machine, to_json
from tilepress.simulate.units.fp16_mac import WeightFormat
from tilepress.simulate.units.int8_quantiser import Scale
from tilepress.simulate.units.rivals import Rival

# What runs at least so many vectors from a seed and says how many; vectors of a part, some 15 seconds.
UNITS = {
    "deca-pe": (jobs.check, 800),
    "deca-pe lanes": (lanes.check, 5000),
    "anda-apu": (dots.check, 6000),
    "anda-compressor": (rounds.check, 3000),
    "harmonia-pe": (products.check, 1500),
    "harmonia-converter": (conversions.check, 15000),
    "harmonia-offsets": (keys.check_offsets, 15000),
    "harmonia-subtractor": (keys.check_smooth, 4000),
    "fp-fp": (partial(rival_dots.check_serial, Rival.fp_fp), 6000),
    "fp-int": (partial(rival_dots.check_serial, Rival.fp_int), 2500),
    "figna": (rival_dots.check_figna, 7000),
    "ifpu": (rival_dots.check_ifpu, 1500),
    "fp16-mac": (partial(halves.check, WeightFormat.fp16), 12000),
    "fp16-mac int4": (partial(halves.check, WeightFormat.int4), 12000),
    "int-mac": (integers.check_int_mac, 30000),
    "m-ant-mac": (integers.check_m_ant_mac, 30000),
    "int8-quantiser": (partial(quantisers.check, Scale.offline), 12000),
    "int8-quantiser online": (partial(quantisers.check, Scale.online), 12000),
}
SEEDS = 1_000_000  # parts of a run have seeds of their own


@dataclass(frozen=True)
class Part:
    """Vectors of a unit from one seed."""

    unit: str
    seed: int
    vectors: int

    def run(self) -> int:
        """Vectors that were equal: all, or an error."""
        torch.set_num_threads(1)
        try:
            return UNITS[self.unit][0](self.seed, self.vectors)
        except AssertionError as error:
            raise AssertionError(f"{self} differs: {error}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", nargs="*", default=list(UNITS), metavar="UNIT", help=", ".join(UNITS))
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--records", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if unknown := set(arguments.units) - set(UNITS):
        parser.error(f"there is no unit {sorted(unknown)[0]!r}")
    equal = _run(arguments)
    for unit in arguments.units:
        print(f"{unit}: {equal[unit]} vectors, all equal")
    if arguments.records:
        arguments.records.write_text(to_json(_record(unit, equal[unit], arguments) for unit in arguments.units) + "\n")


def _run(arguments: argparse.Namespace) -> Counter[str]:
    """Equal vectors of each unit."""
    end, equal, begun, parts = time.monotonic() + arguments.seconds, Counter(), Counter(), Counter()
    running: dict[Future[int], Part] = {}
    with ProcessPoolExecutor(arguments.workers) as pool:
        while True:
            while len(running) < arguments.workers and time.monotonic() < end:
                unit = min(arguments.units, key=lambda unit: begun[unit])
                if begun[unit] >= arguments.vectors:
                    break
                part = Part(unit, SEEDS * arguments.seed + parts[unit], min(UNITS[unit][1], arguments.vectors))
                parts[unit] += 1
                begun[unit] += part.vectors
                running[pool.submit(part.run)] = part
            if not running:
                return equal
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                equal[running.pop(future).unit] += future.result()


def _record(unit: str, vectors: int, arguments: argparse.Namespace) -> Record:
    command = f"python benchmarks/rtl.py --vectors {arguments.vectors} --seed {arguments.seed}"
    labels = {"unit": unit, "seed": arguments.seed}
    return Record("equal_vectors", labels, vectors, "", "simulated", machine(), command, version=__version__)


if __name__ == "__main__":
    main()
