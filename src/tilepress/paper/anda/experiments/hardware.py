"""Anda's hardware: figures 2 and 15 to 18, table III."""

from collections.abc import Iterator
from statistics import mean
from typing import TYPE_CHECKING

from ....compression.search import Mantissas
from ...causes import explained
from ...item import Ours, Track
from ...published import read_paper
from ...studies.arrays import MAPPINGS, MAPPINGS_NOTE, StudyMapping, accelerator, run
from .causes import CAUSES
from .mantissas import combination
from .table2 import models

if TYPE_CHECKING:
    from ....hardware import Accelerator

PAPER = read_paper("anda")
BASELINE, MODEL = "fp-fp", "LLaMA-13B"
VARIANTS = {"0.1 %": "figna-m11", "1 %": "figna-m8"}
BASE_CYCLES = 16  # of a group of 64 in the baseline: what "equal throughput" is in figure 15
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
AVERAGE = "average of models"


def _format(mantissas: Mantissas) -> str:
    return f"anda:{','.join(map(str, mantissas))}"


def figure_2(track: Track) -> Iterator[Ours]:
    """Linear layers among all products of a text of so many tokens, each of which attends to those before it."""
    from ....simulate.layers import find_transformer

    shares: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for name in track(models(), "models"):
        model = find_transformer(name)
        linear = sum(model.products)
        for length in LENGTHS:
            attention = 2 * model.width * (length + 1) / 2
            shares[length].append(100 * linear / (linear + attention))
            yield Ours(name, f"{length} tokens", shares[length][-1], "%")
    for length in LENGTHS:
        yield Ours(AVERAGE, f"{length} tokens", mean(shares[length]), "%")


def _equal(name: str) -> "Accelerator":
    """With lanes for as many products a cycle as the baseline has: four a unit."""
    machine = accelerator(name)
    (mode, *_) = machine.modes
    if mode.cycles.per_bit or mode.cycles.fixed == BASE_CYCLES:
        return machine
    modes = [{**mode.model_dump(), "cycles": {"fixed": BASE_CYCLES}}]
    return machine.changed(unit={"rtl": _four_lanes(machine)}, modes=modes)


def _four_lanes(machine: "Accelerator") -> dict[str, object]:
    rtl = machine.unit.rtl
    return {"unit": rtl.unit, "settings": {**rtl.settings, "lanes": 4}} if rtl else {}


@explained(CAUSES["fig15"])
def figure_15(track: Track) -> Iterator[Ours]:
    from ....simulate.arrays.costs import group_energy, unit_area

    anda = accelerator("anda")
    (bit_serial,) = anda.modes
    # Power at equal throughput: a group every 16 cycles, which is 15 bits of Anda's.
    power = group_energy(anda, bit_serial, BASE_CYCLES - 1)
    for name in track(["fp-fp", "fp-int", "ifpu", "figna"], "units"):
        other = accelerator(name)
        yield Ours(f"over {name}", "area", 100 * unit_area(anda) / unit_area(other), "%")
        yield Ours(f"over {name}", "power", 100 * power / group_energy(other, other.modes[0]), "%")
    for name, mantissas in (("figna", (8, 4)), ("figna-m11", (11,)), ("figna-m8", (8,))):
        other = _equal(name)
        for bits in mantissas:
            area = BASE_CYCLES / (bits + 1) * unit_area(other) / unit_area(anda)
            energy = group_energy(other, other.modes[0]) / group_energy(anda, bit_serial, bits)
            yield Ours(f"{bits} bits over {name}", "area efficiency", area, "x")
            yield Ours(f"{bits} bits over {name}", "energy efficiency", energy, "x")


@explained(CAUSES["fig16"])
def figure_16(track: Track) -> Iterator[Ours]:
    """Iso-throughput: as many bit operations a second at most, the same memories."""
    for mapping in MAPPINGS:
        for tolerance in VARIANTS:
            ratios: dict[str, list[float]] = {}
            for model in track(models(), f"models at {tolerance}{mapping.ending}"):
                mantissas = combination(model, tolerance)
                for column, value in _ratios(model, tolerance, mapping).items():
                    ratios.setdefault(column, []).append(value)
                    yield Ours(f"{model}, {tolerance}{mapping.ending}", column, value, "x", str(list(mantissas)))
            for column, values in ratios.items():
                yield Ours(f"{AVERAGE}, {tolerance}{mapping.ending}", column, mean(values), "x")


def _ratios(model: str, tolerance: str, mapping: StudyMapping) -> dict[str, float]:
    """How many times as good Anda is as the baseline, and as FIGNA's variant."""
    format = _format(combination(model, tolerance))
    machines = [accelerator(name) for name in (BASELINE, "anda", VARIANTS[tolerance])]
    base, anda, figna = (run(machine, model, format, mapping=mapping) for machine in machines)
    speed = base.seconds / anda.seconds
    return {
        "speed-up": speed,
        "area efficiency": speed * base.mm2 / anda.mm2,
        "energy efficiency": base.joules / anda.joules,
        "speed-up over FIGNA's variant": figna.seconds / anda.seconds,
    }


@explained(CAUSES["fig17"])
def figure_17(track: Track) -> Iterator[Ours]:
    for mapping in track(MAPPINGS, "mappings"):
        yield from _breakdown(mapping)


def _breakdown(mapping: StudyMapping) -> Iterator[Ours]:
    format, names = _format(combination(MODEL, "1 %")), (BASELINE, "figna", "anda")
    parts = {name: run(accelerator(name), MODEL, format, mapping=mapping).breakdown for name in names}
    base, figna, anda = parts.values()
    for part in base:
        yield Ours(f"energy saved over fp-fp{mapping.ending}", part, 100 * (1 - anda[part] / base[part]), "%")
        yield Ours(f"times less than figna{mapping.ending}", part, figna[part] / anda[part], "x")
    for name, energies in parts.items():
        for part, energy in energies.items():
            share = 100 * energy / sum(base.values())
            yield Ours(f"share of fp-fp's energy, {name}{mapping.ending}", part, share, "%")


@explained(CAUSES["table3"])
def table_3(track: Track) -> Iterator[Ours]:
    from ....simulate.arrays.costs import area

    (result,) = [run(accelerator("anda"), MODEL, _format(combination(MODEL, "1 %"))) for _ in track([0], "inference")]
    areas, energies = area(result.machine), result.energy
    for row, part in PARTS_3.items():
        yield Ours(row, "area", areas[part], "mm2")
        yield Ours(row, "power", 1e3 * energies[part] / result.seconds, "mW")
    yield Ours("Total", "area", result.mm2, "mm2")
    yield Ours("Total", "power", 1e3 * result.watts, "mW")


@explained(CAUSES["fig18-speed"])
def figure_18(track: Track) -> Iterator[Ours]:
    cases = {"0.1 %": combination(MODEL, "0.1 %"), "1 %": combination(MODEL, "1 %"), "5 %": (5, 5, 5, 5)}
    for tolerance, mantissas in track(list(cases.items()), "tolerances"):
        note = str(list(mantissas)) + (", assumed: the text has none for 5 %" if tolerance == "5 %" else "")
        for mapping in MAPPINGS:
            machines = [accelerator(name) for name in (BASELINE, "anda")]
            base, anda = (run(machine, MODEL, _format(mantissas), mapping=mapping) for machine in machines)
            row = f"{MODEL}, {tolerance}{mapping.ending}"
            yield Ours(row, "speed-up", base.seconds / anda.seconds, "x", note)
            yield Ours(row, "energy efficiency", base.joules / anda.joules, "x", note)


PARTS_3 = {
    "MXU": "array",
    "BPC": "converter",
    "Vector Unit": "vector unit",
    "Activation Buffer": "activation buffer",
    "Weight Buffer": "weight buffer",
}
TUPLES = "Mantissas are candidates for Table II's savings on WikiText2 (anda/fig14-candidates); the text has none."
RTL = (
    "Areas and energies of units, compressor and vector unit are those of our RTL, synthesised in cells of 7 nm "
    "(ASAP7) with clock gates and scaled to 16 nm by Stillmaker and Baas, 3.22 times as large and 2.52 times as much: "
    "cells alone, no wires, no sizing for a clock; energies by toggles on numbers of SmolLM2-135M, no glitches."
)
FITTED = "What was fitted to which cells: `tilepress simulate array --fitted`."

HARDWARE = (
    PAPER.item(
        "fig2",
        "share of FP-INT operations by length",
        "exact",
        figure_2,
        ("The figure's values are not in its text, which says over 90 % on average below 4K tokens.",),
    ),
    PAPER.item(
        "fig15",
        "units: area, power and their efficiency",
        "simulated",
        figure_15,
        (
            "Section V-C contradicts itself: 18 % more area and 27 % more power than FIGNA go with its efficiencies "
            "only if they are swapped (16/9/1.27 = 1.40, 16/5/1.27 = 2.52; 16/9/1.18 = 1.51, 16/5/1.18 = 2.71).",
            RTL,
            "Areas and powers are those of equal throughput: a group of 64 every 16 cycles, four products a cycle. "
            "FP-FP and FP-INT are four units of one lane, which share nothing; FIGNA is one of four lanes, iFPU one of "
            "16, a bit of a weight a cycle.",
        ),
    ),
    PAPER.item(
        "fig16",
        "speed-up, area and energy efficiency of nine models",
        "simulated",
        figure_16,
        (
            TUPLES,
            MAPPINGS_NOTE,
            RTL,
            "Energy efficiencies set the size of tiles (`tilepress simulate array --fitted`); areas nothing.",
            "A group takes a cycle for its signs and one for each bit, read with the speed-ups in sight: 16/(m + 1) "
            "gives them, 16/m does not.",
            "From 0.1 % to 1 % the paper's energy efficiency grows by 3 %, its speed-up by 16 %: with figure 17's "
            "shares (memory halves as mantissas do) it must grow more, as ours does.",
        ),
    ),
    PAPER.item(
        "fig17",
        "energy breakdown of LLaMA-13B at 1 %",
        "simulated",
        figure_17,
        (
            TUPLES,
            MAPPINGS_NOTE,
            RTL,
            "By table III's powers of both buffers and this tuple SRAM saves 45 %, 1.82 times over FIGNA: as here.",
        ),
    ),
    PAPER.item(
        "table3",
        "area and power of Anda, LLaMA-13B at 1 %",
        "simulated",
        table_3,
        (
            TUPLES,
            RTL,
            FITTED,
            "Table III's areas add up to 2.21 mm², not to its 2.17; without leakage, small parts come out too small.",
        ),
    ),
    PAPER.item(
        "fig18-speed",
        "speed-up and energy efficiency of LLaMA-13B by tolerance",
        "simulated",
        figure_18,
        (
            TUPLES,
            MAPPINGS_NOTE,
            RTL,
            "By the paper energy efficiency grows by 9 % while speed grows by 58 %; with figure 17's shares it cannot "
            "stay so flat.",
        ),
    ),
)
