"""What the papers' units cost in the cells of a library: `make synth LIBRARY=NAME LIBERTY="FILE …"`.

    python benchmarks/synth.py asap7 FILE …             all designs; records call the library asap7
    python benchmarks/synth.py asap7 FILE … --only ifpu one unit's
    python benchmarks/synth.py asap7 FILE … --energy    what operations take, too, with numbers of smollm2-135m
    python benchmarks/synth.py asap7 FILE … --workers 8

Records are kept as benchmarks/results/synthesis/NAME.json, after each design; designs that it has already are left out,
so an interrupted run goes on. Files of a library are named there without their folders. What asap7's say of costs is
written to src/tilepress/hardware/synthesis.json, too, where `hardware.synthesised` reads it. The model's numbers are
kept in build/operands.safetensors: a machine that has the file needs no model.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

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
from tilepress.simulate.deca.area import BUSIEST

RESULTS = Path(__file__).parent / "results/synthesis"
OPERANDS = Path(__file__).parents[1] / "build/operands.safetensors"
UNITS = {"memory_bits": "bit", "delay": "ps", "area": "of the library"}
COSTS = ("area", "delay", "memory_bits")
OTHER_LABELS = {"unit", "library", "case", "operation", "item", *(one.name for one in fields(Conditions))}
# (W, L)
DECA = ((1, 1), (2, 1), (4, 1), (4, 2), (8, 1), (8, 2), (8, 4), (8, 8), (16, 4), (16, 8), (32, 4), (32, 8), (64, 8))
FIGNA = ((14, 4), (11, 4), (8, 4), (11, 6), (8, 8))  # (mantissa, lanes): of units as fast as others
OF_HARMONIAS_RIVALS = (
    *(("fp16-mac", f"weight_format={format}") for format in ("fp16", "int4")),
    ("int-mac",),
    ("m-ant-mac",),
    ("m-ant-sums",),
    *(("int8-quantiser", f"scale={kind}") for kind in ("offline", "online")),
)
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
    *OF_HARMONIAS_RIVALS,
    *(("deca-pe", f"W={width}", f"L={tables}") for width, tables in DECA),
]
WHOLE = (("8", "4"), ("32", "8"))  # of which every case is measured
NODE = 7  # nm, of asap7: what memories are scaled to
# ps, as the papers have them, by the first word of a unit's name: DECA's 2.5 GHz, Harmonia's and its rivals' 300 MHz.
CLOCKS = {"deca": 400.0} | dict.fromkeys(("harmonia", "fp16", "int", "m", "int8"), 3333.0)
ANDA_CLOCK = 3509.0  # of its paper's units, rivals among them: 285 MHz
# Designs whose energy is measured. Of the unit with sixteen planes every mantissa is a case.
MEASURED = [
    *(("deca-pe", f"W={width}", f"L={tables}") for width, tables in DECA),
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
    *OF_HARMONIAS_RIVALS,
    *(("anda-apu", f"mantissa={bits}") for bits in (4, 8, 11)),
]


@dataclass(frozen=True)
class Design:
    """A unit to be synthesised, in a library called `library`; its energy, too, or its area alone."""

    name: str
    settings: tuple[str, ...]
    library: str
    liberty: tuple[Path, ...]
    energy: bool

    @property
    def command(self) -> str:
        """That gives the same figures."""
        given = [*(f"--set {one}" for one in self.settings), *(f"--liberty {file.name}" for file in self.liberty)]
        options = energy_options(self.name, self.settings) if self.energy else []
        return " ".join(["tilepress rtl synth", self.name, *given, *options])

    def records(self) -> list[Record]:
        unit = unit_of(self.name, self.settings)
        make = energies if self.energy else costs
        return make(unit, self.library, self.liberty, self.command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the library")
    parser.add_argument("liberty", nargs="+", type=Path)
    parser.add_argument("--only", metavar="UNIT")
    parser.add_argument("--energy", action="store_true")
    parser.add_argument("--workers", type=int, default=1, help="processes; one of a wide element takes 2 GB")
    arguments = parser.parse_args()
    path = RESULTS / f"{arguments.name}.json"
    every = designs(arguments.name, arguments.liberty)
    records = {one.command: [] for one in every}
    for record in from_json(path.read_text("utf-8"), path) if path.exists() else []:
        records.get(record.command, []).append(record)
    missing = [
        one
        for one in every
        if not records[one.command] and one.energy == arguments.energy and arguments.only in (None, one.name)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    failed = []
    for design, made in synthesised(missing, arguments.workers):
        if error := made.exception():
            failed.append(f"{design.command.partition(' --liberty')[0]}: {error}")
            continue
        records[design.command] = made.result()
        write_text(path, to_json(record for some in records.values() for record in some) + "\n")
        print(design.command.partition(" --liberty")[0], flush=True)
    if arguments.name == LIBRARY:
        write_text(SYNTHESIS, costs_text([record for some in records.values() for record in some]))
    if failed:
        sys.exit("\n".join(failed))


def designs(library: str, liberty: Sequence[Path]) -> list[Design]:
    """All of them, in the order of records."""
    asked = [(energy, design) for energy, some in ((False, DESIGNS), (True, MEASURED)) for design in some]
    return [Design(name, tuple(of), library, tuple(liberty), energy) for energy, (name, *of) in asked]


def synthesised(designs: Sequence[Design], workers: int) -> Iterator[tuple[Design, Future[list[Record]]]]:
    """Their records, as they are done."""
    if any(design.energy for design in designs):
        sample()
    with ProcessPoolExecutor(workers) as pool:
        running = {pool.submit(design.records): design for design in designs}
        for future in as_completed(running):
            yield running[future], future


def energy_options(name: str, settings: Sequence[str]) -> list[str]:
    return [
        "--energy",
        f"--clock {clock_of(name):g}",
        f"--node {NODE}",
        *(f"--case '{one}'" if " " in one else f"--case {one}" for one in only(name, settings)),
    ]


def clock_of(name: str) -> float:
    return CLOCKS.get(name.partition("-")[0], ANDA_CLOCK)


def only(name: str, settings: Sequence[str]) -> list[str]:
    """Of Anda's smaller units the one case that they are made for; of DECA's elements but two that which keeps every
    lane at work."""
    given = dict(one.split("=") for one in settings)
    if name == "anda-apu" and given["mantissa"] != "16":
        return [f"m={given['mantissa']}"]
    return [BUSIEST] if name == "deca-pe" and (given["W"], given["L"]) not in WHOLE else []


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


def sample() -> Operands:
    """What `tilepress rtl synth --energy` takes."""
    if not OPERANDS.exists():
        loaded = load_model(EMBEDDED)
        OPERANDS.parent.mkdir(exist_ok=True)
        made = attention_sample(loaded.model, loaded.tokenizer, calibration_text(None)[1])
        save_file({name: tensor.contiguous() for name, tensor in vars(made).items()}, OPERANDS)
    return Operands(**load_file(OPERANDS))


def costs_text(records: Sequence[Record]) -> str:
    """The JSON that `hardware.synthesised` reads: a line a design. Energy is without that of memories, as area is."""
    designs: dict[str, dict[str, Any]] = {}
    cases: dict[tuple[str, str], dict[str, float]] = {}
    for one in records:
        settings = {name: label for name, label in one.labels.items() if name not in OTHER_LABELS}
        key = json.dumps([one.labels["unit"], settings], sort_keys=True)
        design = designs.setdefault(key, {"unit": one.labels["unit"], "settings": settings})
        if one.metric in COSTS:
            design[one.metric] = one.value
        if "case" in one.labels:
            cases.setdefault((key, one.labels["case"]), {})[one.metric] = one.value
    for (key, case), figures in cases.items():
        logic = figures["energy"] - figures.get("energy_memories", 0.0)
        designs[key].setdefault("energy", {})[case] = logic
        designs[key].setdefault("items", {})[case] = round(figures["energy"] / figures["energy_per_item"])
    return "[\n" + ",\n".join(map(json.dumps, designs.values())) + "\n]\n"


if __name__ == "__main__":
    main()
