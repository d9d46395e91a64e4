"""How far memory's time and a core's hide behind each other: fitted to two cells of kept results, checked on the rest.

    python benchmarks/fit_overlap.py benchmarks/results/2026-11-15-neoverse-n1.json --feature asimddp --frequency 2.5e9

Takes rows of batch 1 that our kernels were counted for. What a call costs beside its weights is that of the smallest
shape of the file, 192x576, less its limit: kept results have no calls without weights, which `bench linear --predict`
times. Prints, for every cell but the two, what was measured over the limit of the slowest domain, and over what is
expected.
"""

import argparse
import json
import re
from dataclasses import dataclass

from tilepress.bench.linear import parse_contestant
from tilepress.hardware import Machine
from tilepress.hardware.here import machine_here
from tilepress.hardware.machine import TILE_WEIGHTS
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
        names, shape, command = FITTED
        return self.name in names and self.shape == shape and command in self.command

    def expected(self, overlap: float, call: float = 0.0) -> float:
        """Seconds."""
        return call + self.tiles * expected_time(self.surface, overlap)


def cells(records: list[dict], machine: Machine) -> list[Cell]:
    values = {(one["command"], one["name"]): one["value"] for one in records}
    found = []
    for (command, name), value in values.items():
        parts = re.fullmatch(r"(.+)\.(\d+x\d+)\.b1\.time", name)
        kernel = values.get((command, name.removesuffix("time") + "kernel"))
        if not parts or "bench linear" not in command or "/" not in str(kernel):
            continue
        bandwidth = 1e9 * values[command, f"read_bandwidth.{parts[2]}.b1"]
        limited = machine.changed(memory={"bandwidth": bandwidth})
        try:
            one = parse_contestant(parts[1])
            surface = predict(limited, one.format, one.density, Kernel(kernel, one.activations)).surface
        except ValueError:
            continue  # a peer, or not counted
        found.append(Cell(parts[1], parts[2], command, value / 1e6, surface))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results")
    parser.add_argument("--feature", required=True, help="what hardware/cores.yaml knows the core by")
    parser.add_argument("--frequency", type=float, required=True, help="hertz")
    parser.add_argument("--threads", type=int, default=2)
    told = parser.parse_args()
    machine = machine_here("kept", {told.feature}, 1e9, told.threads, told.frequency).changed(cores=told.threads)
    with open(told.results) as file:
        found = cells(json.load(file), machine)
    calls = {cell.name: cell.measured - cell.expected(1.0) for cell in found if cell.shape == CALL}
    usual = sorted(calls.values())[len(calls) // 2]

    def error(overlap: float) -> float:
        of = [cell for cell in found if cell.is_fitted]
        return sum((cell.expected(overlap, calls.get(cell.name, usual)) / cell.measured - 1) ** 2 for cell in of)

    overlap = min((share / 100 for share in range(101)), key=error)
    print(f"overlap {overlap:.2f}, kept {machine.overlap:.2f}, fitted to {sum(one.is_fitted for one in found)} cells")
    for cell in found:
        if not cell.is_fitted and cell.shape != CALL:
            expected = cell.expected(machine.overlap, calls.get(cell.name, usual))
            over = f"{cell.measured / cell.expected(1.0):5.2f} {cell.measured / expected:5.2f}"
            print(f"{cell.name:24} {cell.shape:12} {1e6 * cell.measured:9.1f} us  {over}")


if __name__ == "__main__":
    main()
