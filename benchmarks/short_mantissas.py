"""Whether activations of one to four bits can be multiplied faster than those of seven on a CPU with NEON dots.

    python benchmarks/short_mantissas.py                  one row and 64, normal and heavy-tailed activations
    python benchmarks/short_mantissas.py --zeros MODEL    only how many activations of a model are zero, on any machine
    python benchmarks/short_mantissas.py --json           records to standard output instead of benchmarks/results

Compiles short_mantissas/main.cc beside it (c++ must be there) and runs it; times the package's own layer with seven
bits in turn with it, CPU time of one thread. docs/short-mantissas.md says what the variants are, and what was learnt.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

from run import keep
from tilepress import __version__, kernels
from tilepress.evaluate.tokens import tokenize
from tilepress.formats import BFP
from tilepress.formats.bfp import rounded
from tilepress.models.loading import load_model
from tilepress.models.tensor_types import classify
from tilepress.models.texts import evaluation_text
from tilepress.records import Labels, Record, machine, to_json
from tilepress.tiles import pack

SOURCE = Path(__file__).with_suffix("") / "main.cc"
COMPILE = ["c++", "-std=c++20", "-O3", "-ffp-contract=off", "-march=armv8.2-a+dotprod", "-mtune=neoverse-n1"]
SIZE, COPIES = 4096, 6
CALLS = {1: 61, 64: 3}  # rows: calls of each variant
TOKENS = 192

Figure = tuple[str, Labels, float, str]  # metric, labels, value, unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zeros", metavar="MODEL", help="count zeros among this model's activations, and do no more")
    parser.add_argument("--json", action="store_true", help="print the records instead of keeping them")
    arguments = parser.parse_args()
    if not arguments.zeros and platform.machine() != "aarch64":
        sys.exit("the variants are written for NEON; run this on an aarch64 machine")
    command, here = " ".join(["python", *sys.argv]), machine()
    figures = zeros(arguments.zeros) if arguments.zeros else times()
    records = [Record(*figure, "measured", here, command, version=__version__) for figure in figures]
    print(to_json(records)) if arguments.json else keep(records, whole=False)


def zeros(name: str) -> list[Figure]:
    """Of each tensor type, the mean over its layers of the shares of values, and of eights of them, that are zero."""
    loaded = load_model(name, dtype=torch.float32)
    tokens = tokenize(loaded.tokenizer, evaluation_text(None)[1][:20000])[:TOKENS]
    shares: dict[tuple[str, Labels], list[float]] = {}

    def count(kind: str, x: Tensor) -> None:
        for mantissa in range(1, 8):
            empty = rounded(x, BFP(64, mantissa)).eq(0).flatten()
            eights = empty[: len(empty) // 8 * 8].view(-1, 8).all(-1)
            labels = Labels(model=name, tensor=kind, mantissa=mantissa)
            for metric, mask in (("share_of_zeros", empty), ("share_of_zero_eights", eights)):
                shares.setdefault((metric, labels), []).append(float(mask.float().mean()))

    for layer, kind in classify(loaded.model).items():
        loaded.model.get_submodule(layer).register_forward_pre_hook(lambda _, x, kind=kind: count(kind, x[0]))
    with torch.no_grad():
        loaded.model(tokens[None])
    return [(*figure, statistics.mean(layers), "") for figure, layers in shares.items()]


def times() -> list[Figure]:
    weights = [pack(torch.randn(SIZE, SIZE), "int4:g64") for _ in range(COPIES)]
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "short_mantissas"
        subprocess.run([*COMPILE, str(SOURCE), "-o", str(program)], check=True)
        runs = [(rows, kind) for rows in CALLS for kind in ("normal", "heavy")]
        for rows, kind in track(runs, description="short mantissas", disable=not sys.stderr.isatty()):
            labels = Labels(distribution=kind, batch=rows)
            packed = Labels({**labels, "mantissa": 7, "variant": "linear layer"})
            figures.append(("time", packed, seven_bits(weights, rows), "us"))
            figures += run(program, rows, kind, labels)
    return figures


def run(program: Path, rows: int, kind: str, labels: Labels) -> list[Figure]:
    """Microseconds of every variant at every mantissa, and the share of activations that were zero."""
    done = subprocess.run([program, str(rows), str(CALLS[rows]), kind], check=True, capture_output=True, text=True)
    figures = []
    for line in done.stdout.splitlines():
        variant, mantissa, _, zeros, microseconds = line.split(";")
        at = Labels({**labels, "mantissa": int(mantissa), "variant": variant})
        figures += [("time", at, float(microseconds), "us"), ("share_of_zeros", at, float(zeros), "")]
    return figures


def seven_bits(weights: list, rows: int) -> float:
    """Microseconds of CPU time that the package's layer takes, the median."""
    x, times = torch.randn(rows, SIZE), []
    for call in range(CALLS[rows] + 1):
        start = time.thread_time()
        kernels.linear(x, weights[call % COPIES], activations="bfp:g64:m7", threads=1)
        times.append(time.thread_time() - start)
    return 1e6 * statistics.median(times[1:])


if __name__ == "__main__":
    main()
