"""How far memory's time and a core's hide behind each other: fitted to two cells of saved results, checked on the rest.

    python benchmarks/fit_overlap.py benchmarks/results/2026-11-18-neoverse-n1.json --feature asimddp --frequency 2.5e9
    python benchmarks/fit_overlap.py benchmarks/results/2026-11-19-intel-r-xeon-r-processor.json --feature amx_tile \
        --frequency 2.79e9 --cores 8 --floats bf16

Takes rows of batch 1 that our kernels were counted for. What a call costs beside its weights is that of the smallest
shape of the file, 192x576, less its limit: saved results have no calls without weights, which `bench linear --predict`
times. Prints, for every cell but the two, what was measured over the limit of the slowest domain, and over what is
expected.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilepress.bench.linear import Contestant
from tilepress.formats import parse_weight
from tilepress.hardware import Machine
from tilepress.hardware.here import machine_here
from tilepress.hardware.machine import TILE_WEIGHTS
from tilepress.records import Labels, Record
from tilepress.report import read_records
from tilepress.roofsurface import Bound, expected_time, predict
from tilepress.roofsurface.kernels import Kernel

FITTED = ("int8:row+int8", "int4:g32+int8"), "4096x4096", "--sweep"
CALL = "192x576"


@dataclass(frozen=True)
class Cell:
    name: str
    shape: str
    command: str
    measured: float
    surface: Bound

    @property
    def tiles(self) -> float:
        neurons, inputs = map(int, self.shape.split("x"))
        return neurons * inputs / TILE_WEIGHTS

    @property
    def is_fitted(self) -> bool:
        return self.is_like_fitted and FITTED[2] in self.command

    @property
    def is_like_fitted(self) -> bool:
        """The same kernel and shape, whichever command measured it: no test of what was fitted."""
        return self.name in FITTED[0] and self.shape == FITTED[1]

    def expected(self, overlap: float, call: float = 0.0) -> float:
        """Seconds."""
        return call + self.tiles * expected_time(self.surface, overlap)


def cells(records: Sequence[Record], machine: Machine, floats: str) -> list[Cell]:
    """`floats`: what floats are among the activations, float or bf16."""
    values = {(one.command, one.metric, one.labels): one.value for one in records}
    counted = []
    for (command, metric, labels), value in values.items():
        if metric != "time" or "format" not in labels or labels.get("batch") != 1:
            continue
        kernel, shape = values[command, "kernel", labels], labels["shape"]
        bandwidth = 1e9 * values[command, "read_bandwidth", Labels(shape=shape, batch=1)]
        limited = machine.changed(memory={"bandwidth": bandwidth})
        one = Contestant(parse_weight(labels["format"]), labels["density"], labels["activations"])
        try:
            activations = floats if one.activations == "float" else one.activations
            surface = predict(limited, one.format, one.density, Kernel(kernel, activations)).surface
        except ValueError:
            continue  # not counted
        counted.append(Cell(str(one), shape, command, value / 1e6, surface))
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--feature", required=True, help="what hardware/cores.yaml knows the core by")
    parser.add_argument("--frequency", type=float, required=True, help="hertz")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--floats", choices=["float", "bf16"], default="float", help="the activations' type")
    given = parser.parse_args()
    machine = machine_here("saved", {given.feature}, 1e9, given.cores, given.frequency).changed(cores=given.cores)
    counted = cells(read_records([given.results]), machine, given.floats)
    calls = {cell.name: cell.measured - cell.expected(1.0) for cell in counted if cell.shape == CALL}
    usual = sorted(calls.values())[len(calls) // 2]

    def error(overlap: float) -> float:
        of = [cell for cell in counted if cell.is_fitted]
        return sum((cell.expected(overlap, calls.get(cell.name, usual)) / cell.measured - 1) ** 2 for cell in of)

    overlap = min((share / 100 for share in range(101)), key=error)
    print(
        f"overlap {overlap:.2f}, in use {machine.overlap:.2f}, fitted to {sum(one.is_fitted for one in counted)} cells"
    )
    errors = []
    for cell in counted:
        if not cell.is_like_fitted and cell.shape != CALL:
            expected = cell.expected(machine.overlap, calls.get(cell.name, usual))
            over = f"{cell.measured / cell.expected(1.0):5.2f} {cell.measured / expected:5.2f}"
            print(f"{cell.name:24} {cell.shape:12} {1e6 * cell.measured:9.1f} us  {over}")
            errors.append(abs(cell.measured / expected - 1))
    near = sum(error <= 0.15 for error in errors)
    print(f"{near} of {len(errors)} within 15 %, median error {100 * statistics.median(errors):.0f} %")


if __name__ == "__main__":
    main()
