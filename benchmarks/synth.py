"""What the papers' units cost in the cells of a library: `make synth LIBRARY=NAME LIBERTY="FILE …"`.

    python benchmarks/synth.py asap7 FILE …             all designs; records call the library asap7
    python benchmarks/synth.py asap7 FILE … --only ifpu one unit's
    python benchmarks/synth.py asap7 FILE … --energy    what operations take, too, with numbers of smollm2-135m

Records are kept as benchmarks/results/synthesis/NAME.json, after each design; designs that it has already are left out,
so an interrupted run goes on. Files of a library are named there without their folders. What asap7's say of costs is
written to src/tilepress/hardware/synthesis.json, too, where `hardware.synthesised` reads it.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from tilepress import __version__
from tilepress._files import write_text
from tilepress.hardware.synthesised import LIBRARY, SYNTHESIS
from tilepress.models import load_model
from tilepress.models.attention_sample import attention_sample
from tilepress.models.named import EMBEDDED
from tilepress.models.texts import calibration_text
from tilepress.records import Record, from_json, machine, to_json
from tilepress.rtl.energy import Conditions, Operands, measure
from tilepress.rtl.synthesis import synthesize
from tilepress.rtl.units import Unit, unit_of

RESULTS = Path(__file__).parent / "results/synthesis"
UNITS = {"memory_bits": "bit", "delay": "ps", "area": "of the library"}
COSTS = ("area", "delay", "memory_bits")
OTHER_LABELS = {"unit", "library", "case", "operation", "item", *(one.name for one in fields(Conditions))}
DECA = (
    (1, 1),
    (2, 1),
    (4, 1),
    (4, 2),
    (8, 1),
    (8, 2),
    (8, 4),
    (8, 8),
    (16, 4),
    (16, 8),
    (32, 4),
    (32, 8),
    (64, 8),
)  # (W, L)
FIGNA = ((14, 4), (11, 4), (8, 4), (11, 6), (8, 8))  # (mantissa, lanes): of units as fast as others
DESIGNS = [
    *(("anda-apu", f"mantissa={bits}") for bits in (4, 5, 6, 7, 8, 9, 10, 11, 13, 16)),
    ("anda-compressor", "lanes=1"),
    ("fp-fp",),
    ("fp-int",),
    *(("figna", f"mantissa={bits}") for bits in (8, 11, 14)),
    *(("figna", f"mantissa={bits}", f"lanes={lanes}") for bits, lanes in FIGNA),
    ("ifpu",),
    ("ifpu", "mantissa=24", "lanes=16"),
    ("harmonia-pe",),
    ("harmonia-converter",),
    ("harmonia-offsets",),
    ("harmonia-subtractor",),
    *(("deca-pe", f"W={width}", f"L={tables}") for width, tables in DECA),
]
NODE = 7  # nm, of asap7: what memories are scaled to
CLOCKS = {"deca": 400.0, "harmonia": 3333.0}  # ps, as the papers have them, by the first word of a unit's name
ANDA_CLOCK = 3509.0  # of its paper's units, rivals among them: 285 MHz
# Designs whose energy is measured. Of the unit with sixteen planes every mantissa is a case.
MEASURED = [
    ("deca-pe", "W=8", "L=4"),
    ("anda-apu", "mantissa=16"),
    ("fp-fp",),
    ("fp-int",),
    *(("figna", f"mantissa={bits}") for bits in (8, 11, 14)),
    *(("figna", f"mantissa={bits}", f"lanes={lanes}") for bits, lanes in FIGNA),
    ("ifpu",),
    ("ifpu", "mantissa=24", "lanes=16"),
    ("harmonia-pe",),
    ("anda-compressor", "lanes=1"),
    ("harmonia-converter",),
    ("harmonia-offsets",),
    ("harmonia-subtractor",),
    *(("anda-apu", f"mantissa={bits}") for bits in (4, 8, 11)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the library")
    parser.add_argument("liberty", nargs="+", type=Path)
    parser.add_argument("--only", metavar="UNIT")
    parser.add_argument("--energy", action="store_true")
    arguments = parser.parse_args()
    path = RESULTS / f"{arguments.name}.json"
    records = from_json(path.read_text("utf-8"), path) if path.exists() else []
    done = {record.command for record in records}
    for name, *settings in MEASURED if arguments.energy else DESIGNS:
        options = energy_options(name, settings) if arguments.energy else []
        command = command_of(name, settings, arguments.liberty, options)
        if command not in done and arguments.only in (None, name):
            make = energies if arguments.energy else costs
            records += make(unit_of(name, settings), arguments.name, arguments.liberty, command)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, to_json(records) + "\n")
            print(command.partition(" --liberty")[0], flush=True)
    if arguments.name == LIBRARY:
        write_text(SYNTHESIS, costs_text(records))


def command_of(name: str, settings: Sequence[str], liberty: Sequence[Path], options: Sequence[str]) -> str:
    given = [*(f"--set {one}" for one in settings), *(f"--liberty {file.name}" for file in liberty)]
    return " ".join(["tilepress rtl synth", name, *given, *options])


def energy_options(name: str, settings: Sequence[str]) -> list[str]:
    return [
        "--energy",
        f"--clock {clock_of(name):g}",
        f"--node {NODE}",
        *(f"--case {one}" for one in only(name, settings)),
    ]


def clock_of(name: str) -> float:
    return CLOCKS.get(name.partition("-")[0], ANDA_CLOCK)


def only(name: str, settings: Sequence[str]) -> list[str]:
    """Of Anda's smaller units the one case that they are made for."""
    (mantissa,) = [one.partition("=")[2] for one in settings if one.startswith("mantissa=")] or [""]
    return [f"m={mantissa}"] if name == "anda-apu" and mantissa != "16" else []


def costs(unit: Unit, library: str, liberty: Sequence[Path], command: str) -> list[Record]:
    labels = {"unit": unit.name, **unit.settings, "library": library}
    return [
        Record(metric, labels, value, UNITS.get(metric, ""), "model", machine(), command, version=__version__)
        for metric, value in vars(synthesize(unit, liberty)).items()
        if value is not None
    ]


def energies(unit: Unit, library: str, liberty: Sequence[Path], command: str) -> list[Record]:
    design = {"unit": unit.name, **unit.settings, "library": library}
    conditions = Conditions(clock=clock_of(unit.name), node=NODE, data=EMBEDDED)
    cases = only(unit.name, [f"{name}={value}" for name, value in unit.settings.items()])
    _, measured = measure(unit, liberty, sample(), conditions, cases)
    return [
        Record(metric, design | labels, value, its_unit, "simulated", machine(), command, version=__version__)
        for one in measured
        for metric, labels, value, its_unit in one.figures()
    ]


@cache
def sample() -> Operands:
    """What `tilepress rtl synth --energy` takes."""
    loaded = load_model(EMBEDDED)
    return Operands(**vars(attention_sample(loaded.model, loaded.tokenizer, calibration_text(None)[1])))


def costs_text(records: Sequence[Record]) -> str:
    """The JSON that `hardware.synthesised` reads: a line a design."""
    designs: dict[str, dict[str, Any]] = {}
    for one in records:
        settings = {name: label for name, label in one.labels.items() if name not in OTHER_LABELS}
        key = json.dumps([one.labels["unit"], settings], sort_keys=True)
        if one.metric in COSTS:
            design = designs.setdefault(key, {"unit": one.labels["unit"], "settings": settings})
            design[one.metric] = one.value
        if one.metric == "energy":
            designs[key].setdefault("energy", {})[one.labels["case"]] = one.value
        if one.metric == "energy_per_item":
            case = one.labels["case"]
            designs[key].setdefault("items", {})[case] = round(designs[key]["energy"][case] / one.value)
    return "[\n" + ",\n".join(map(json.dumps, designs.values())) + "\n]\n"


if __name__ == "__main__":
    main()
