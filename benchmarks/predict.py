"""How near predictions are: ten kernels at 1 and 16 rows, each measured beside what counted operations predict.

    python benchmarks/predict.py
    python benchmarks/predict.py --strict --out predictions

Runs `tilepress bench linear --predict`, prints every cell and how many are within 15 %, and keeps the records as
OUT/<date>-<processor>.json. A kernel that nobody has counted for so many rows counts as missed. A busy machine is told
of and recorded; --strict keeps nothing then.
"""

import argparse
import datetime
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from run import RESULTS, processor, run, write
from tilepress.records import Labels, Record

KERNELS = [
    "int4:g32",
    "int4:g32+int8",
    "int8:row",
    "int8:row+int8",
    "mxfp4",
    "nf4:g64",
    "bf8",
    "bf8@50%",
    "bf16",
    "bf16@50%",
]
SHAPES = ["4096x4096", "14336x4096"]
BATCHES = [1, 16]
WITHIN = 0.15


@dataclass(frozen=True)
class Cell:
    """Times in microseconds; `predicted` is None where the kernel was not counted for so many rows."""

    kernel: str
    shape: str
    rows: int
    measured: float
    predicted: float | None
    bound: str

    @property
    def is_near(self) -> bool:
        return self.predicted is not None and abs(self.measured / self.predicted - 1) <= WITHIN

    def __str__(self) -> str:
        head = f"{self.kernel:16} {self.shape:11} {self.rows:3} rows {self.measured:9.1f} us measured"
        if self.predicted is None:
            return f"{head}, not counted"
        ratio = f"{self.measured / self.predicted:5.2f} {'' if self.is_near else '  *'}"
        return f"{head} {self.predicted:9.1f} predicted  {self.bound:10} {ratio}"


def command(shapes: Sequence[str], strict: bool) -> list[str]:
    batches, of = [f"--batch={batch}" for batch in BATCHES], [f"--shape={shape}" for shape in shapes]
    return ["bench", "linear", *KERNELS, "--predict", "--no-peers", *batches, *of, *(["--strict"] if strict else [])]


def cells(records: Sequence[Record]) -> list[Cell]:
    values = {(one.metric, one.labels): one.value for one in records}
    return [
        Cell(
            _name(one.labels),
            one.labels["shape"],
            one.labels["batch"],
            one.value,
            values.get(("predicted_time", one.labels)),
            values.get(("predicted_bound", one.labels), ""),
        )
        for one in records
        if one.metric == "time"
    ]


def _name(labels: Labels) -> str:
    """As `bench linear` takes it."""
    density = "" if labels["density"] == 1 else f"@{100 * labels['density']:g}%"
    return f"{labels['format']}{density}{'' if labels['activations'] == 'float' else '+' + labels['activations']}"


def summary(all_cells: Sequence[Cell]) -> list[str]:
    """How many are near, by rows; and of the kernels, those that are near at every shape."""
    lines = []
    for rows in sorted({cell.rows for cell in all_cells}):
        here = [cell for cell in all_cells if cell.rows == rows]
        names = dict.fromkeys(cell.kernel for cell in here)
        whole = [name for name in names if all(cell.is_near for cell in here if cell.kernel == name)]
        near = f"{sum(cell.is_near for cell in here)} of {len(here)} cells within {100 * WITHIN:.0f} %"
        lines.append(f"{rows} rows: {near}; {len(whole)} of {len(names)} kernels at every shape")
    return lines


def busy(records: Sequence[Record]) -> list[str]:
    return [f"{one.labels}: {one.value}" for one in records if one.metric == "busy" and one.value != "no"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "predictions", help="folder for the records")
    parser.add_argument("--strict", action="store_true", help="refuse a busy machine")
    parser.add_argument("--shape", action="append", help=f"NEURONSxINPUTS; {' and '.join(SHAPES)} if not given")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = run(command(given.shape or SHAPES, given.strict), folder)
    all_cells = cells(records)
    print("\n".join([*map(str, all_cells), *summary(all_cells), *(f"busy at {text}" for text in busy(records))]))
    write(given.out / f"{datetime.date.today()}-{processor()}.json", records)


if __name__ == "__main__":
    main()
