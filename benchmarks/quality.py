"""What compression costs smollm2-135m in quality, format by format: benchmarks/results/quality/<date>-<processor>.json.

Perplexity on WikiText-2's test part, divergence from the model as it comes, PIQA, size of the files, speed of decoding;
TILEPRESS_DATA names the folder with both texts. Every row is kept as soon as it is there: interrupted, the same command
goes on with the rows that are missing. Rows may be named to run only those.
"""

import argparse
import datetime
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from run import RESULTS, processor, read, run, write
from tilepress.records import Record

BASE = "smollm2-135m"
INTEGERS = [f"{format}:g32" for format in ("int8", "int4", "uint4")]
FLOATS = ["mxfp4", "bf8", "e4m3"]
ACTIVATIONS = "bfp:g32:m7"  # of integer weights: little is lost, and integer kernels compute
COMPRESSION = ("source_size", "size", "time")  # metrics of it that are saved
OUT = "out"  # the compressed model's folder, in a temporary one


@dataclass(frozen=True)
class Row:
    """`density`: of the weights that are kept, chosen by the method `prune`."""

    format: str
    density: float = 1.0
    prune: str = ""
    activations: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """What records call the compressed model."""
        density = f"@{100 * self.density:g}%" if self.density < 1 else ""
        activations = f"+{self.activations}" if self.activations else ""
        model = {"model": f"{self.format}{density}{activations}"}
        return {**model, "prune": self.prune} if self.prune else model

    def __str__(self) -> str:
        return " ".join(self.labels.values())

    def compress(self) -> list[str]:
        command = ["compress", BASE, "-o", OUT, "--weights", self.format]
        command += ["--density", f"{self.density:g}", "--prune", self.prune] if self.prune else []
        return [*command, "--acts", self.activations] if self.activations else command


def _rows() -> dict[str, Row | None]:
    """Name → row; None is the model as it comes."""
    rows = [Row(format, activations=ACTIVATIONS) for format in INTEGERS] + [Row(format) for format in FLOATS]
    rows += [Row(row.format, 0.5, "wanda", row.activations) for row in rows]
    rows += [Row("bf16", 0.5, prune) for prune in ("magnitude", "wanda", "sparsegpt")]
    rows += [Row("bf16", density, "wanda") for density in (0.7, 0.4, 0.3)]
    return {BASE: None, **{str(row): row for row in rows}}


ROWS = _rows()


def main() -> None:
    arguments = parse_arguments()
    path = results_file(arguments)
    for name in arguments.rows or ROWS:
        records = read(path)
        if is_done(name, records, arguments):
            print(f"{name}: done before")
            continue
        other_rows = [record for record in records if not belongs(record, name)]
        write(path, [*other_rows, *measured(name, arguments)])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all if none is named")
    parser.add_argument("--windows", type=int, default=1, help="of 2048 tokens of WikiText-2")
    parser.add_argument("--items", type=int, default=25, help="of PIQA")
    parser.add_argument("--sequences", type=int, default=16, help="of 512 tokens to calibrate with")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.rows if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return arguments


def results_file(arguments: argparse.Namespace) -> Path:
    """The latest of this machine if it lacks a row, else a new one."""
    folder = RESULTS / "quality"
    for path in sorted(folder.glob(f"*-{processor()}.json"))[-1:]:
        records = read(path)
        if not all(is_done(name, records, arguments) for name in ROWS):
            return path
    return folder / f"{datetime.date.today()}-{processor()}.json"


def is_done(name: str, records: Sequence[Record], arguments: argparse.Namespace) -> bool:
    """Whether records of that row were made by the very commands that would make them now."""
    made = {record.command for record in records if belongs(record, name)}
    return made == {" ".join(["tilepress", *command, "--json"]) for command in commands(name, arguments)}


def labels_of(name: str) -> dict[str, str]:
    row = ROWS[name]
    return {"model": BASE} if row is None else row.labels


def belongs(record: Record, name: str) -> bool:
    return {key: record.labels[key] for key in ("model", "prune") if key in record.labels} == labels_of(name)


def commands(name: str, arguments: argparse.Namespace) -> list[list[str]]:
    row = ROWS[name]
    model, against = (BASE, []) if row is None else (OUT, ["--against", BASE])
    evaluate = ["eval", model, *against, "--data", "wikitext2", "--windows", str(arguments.windows)]
    evaluate += ["--task", "piqa", "--items", str(arguments.items)]
    timing = ["bench", "model", model, "--no-peers"]
    calibration = ["--sequences", str(arguments.sequences), "--length", "512"]
    return [*([[*row.compress(), *calibration]] if row else []), evaluate, timing]


def measured(name: str, arguments: argparse.Namespace) -> list[Record]:
    with tempfile.TemporaryDirectory() as folder:
        records = [record for command in commands(name, arguments) for record in run(command, folder)]
    of_model = [record for record in records if "model" in record.labels and _is_saved(record)]
    return [replace(record, labels={**record.labels, **labels_of(name)}) for record in of_model]


def _is_saved(record: Record) -> bool:
    """Of compression, no single layers."""
    is_compression = record.command.startswith("tilepress compress")
    return not is_compression or (record.metric in COMPRESSION and set(record.labels) == {"model"})


if __name__ == "__main__":
    main()
