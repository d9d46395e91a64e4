"""What the papers' units cost in the cells of a library: `make synth LIBRARY=NAME LIBERTY="FILE …"`.

    python benchmarks/synth.py asap7 FILE …             all designs; records call the library asap7
    python benchmarks/synth.py asap7 FILE … --only ifpu one unit's

Records are kept as benchmarks/synthesis/NAME.json, after each design; designs that it has already are left out, so an
interrupted run goes on. Files of a library are named there without their folders.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tilepress import __version__
from tilepress._files import write_text
from tilepress.records import Record, from_json, machine, to_json
from tilepress.rtl.synthesis import synthesize
from tilepress.rtl.units import Unit, unit_of

RESULTS = Path(__file__).parent / "synthesis"
UNITS = {"memory_bits": "bit", "delay": "ps", "area": "of the library"}
DECA = ((1, 1), (2, 1), (4, 1), (4, 2), (8, 1), (8, 2), (8, 4), (8, 8), (16, 4), (16, 8), (32, 4), (32, 8))  # (W, L)
DESIGNS = [
    *(("anda-apu", f"mantissa={bits}") for bits in (4, 5, 6, 7, 8, 9, 10, 11, 13, 16)),
    ("anda-compressor", "lanes=1"),
    ("fp-fp",),
    ("fp-int",),
    *(("figna", f"mantissa={bits}") for bits in (8, 11, 14)),
    ("ifpu",),
    ("harmonia-pe",),
    ("harmonia-converter",),
    ("harmonia-offsets",),
    ("harmonia-subtractor",),
    *(("deca-pe", f"W={width}", f"L={tables}") for width, tables in DECA),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the library")
    parser.add_argument("liberty", nargs="+", type=Path)
    parser.add_argument("--only", metavar="UNIT")
    arguments = parser.parse_args()
    path = RESULTS / f"{arguments.name}.json"
    records = from_json(path.read_text("utf-8"), path) if path.exists() else []
    done = {record.command for record in records}
    for name, *settings in DESIGNS:
        command = command_of(name, settings, arguments.liberty)
        if command not in done and arguments.only in (None, name):
            records += measured(unit_of(name, settings), arguments.name, arguments.liberty, command)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, to_json(records) + "\n")
            print(command.partition(" --liberty")[0], flush=True)


def command_of(name: str, settings: Sequence[str], liberty: Sequence[Path]) -> str:
    given = [*(f"--set {one}" for one in settings), *(f"--liberty {file.name}" for file in liberty)]
    return " ".join(["tilepress rtl synth", name, *given])


def measured(unit: Unit, library: str, liberty: Sequence[Path], command: str) -> list[Record]:
    labels = {"unit": unit.name, **unit.settings, "library": library}
    return [
        Record(metric, labels, value, UNITS.get(metric, ""), "model", machine(), command, version=__version__)
        for metric, value in vars(synthesize(unit, liberty)).items()
        if value is not None
    ]


if __name__ == "__main__":
    main()
