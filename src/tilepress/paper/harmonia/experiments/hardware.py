"""Harmonia's hardware: figures 1 and 16 to 19, and what its synthesis gave."""

from collections.abc import Iterator
from statistics import mean
from typing import TYPE_CHECKING

from ...causes import explained
from ...item import Ours, Track
from ...published import read_paper
from ...studies.arrays import MAPPINGS, MAPPINGS_NOTE, SEQUENCE, StudyMapping, accelerator, run
from .causes import CAUSES
from .rivals import Rival, rivals

if TYPE_CHECKING:
    from ....simulate.arrays.workload import Scope

PAPER = read_paper("harmonia")
FORMAT = "bfp:g32:m8"
# Tables I and II; "eight widely used LLMs" are not listed.
MODELS = (
    "LLaMA-7B", "LLaMA-13B", "Llama2-7B", "Llama2-13B", "OPT-6.7B", "Llama3.2-1B", "Llama3.2-3B", "Mistral-7B",
    "Llama3.1-8B",
)  # fmt: skip
LENGTHS = (2048, 4096, 8192, 16384)
LONG = (2048, 8192, 32768, 131072)
SPEED, AREA, ENERGY = "speed-up", "area efficiency", "energy efficiency"
COLUMNS = (SPEED, AREA, ENERGY)
Ratios = dict[str, dict[str, list[float]]]  # rival → column → of each model
LEAST, MOST, LARGEST, ALL = "least average", "largest average", "largest of a model", "average of all"


def figure_1(track: Track) -> Iterator[Ours]:
    """Shares of attention among products, and of keys and values (FP16) beside INT4 weights in memory."""
    from ....formats import parse_weight
    from ....simulate.layers import find_transformer

    bits = parse_weight("int4:g128").bits_per_weight()
    for name in track(["Llama3.2-3B", "Llama2-7B", "Llama2-13B", "Llama2-70B"], "models"):
        model = find_transformer(name)
        for length in LONG:
            linear, attention = sum(model.products), 2 * model.width * (length + 1) / 2
            yield Ours(f"{name}, {length} tokens", "attention", 100 * attention / (linear + attention), "%")
            cache = 2 * 16 * model.kv_width * model.layers * length
            yield Ours(f"{name}, {length} tokens", "KV cache", 100 * cache / (cache + bits * model.weights), "%")


@explained(CAUSES["fig17"])
def figure_17(track: Track) -> Iterator[Ours]:
    """Products a second and mm², and a pJ, of the units alone."""
    from ....simulate.arrays.costs import group_energy, unit_area

    def figures(rival: Rival, other: str = "int4", mantissa: int = 0) -> tuple[float, float]:
        machine = rival.machine
        kind = machine.stores
        mode = machine.mode(kind, rival.mantissa if kind == "bfp" else 0, other, mantissa)
        group, cycles = machine.array.group, mode.cycles.of(rival.mantissa)
        return group / cycles / unit_area(machine), group / group_energy(machine, mode, rival.mantissa)

    ours = Rival("harmonia", accelerator("harmonia"), 8)
    area, energy = figures(ours)
    ratios: dict[str, list[float]] = {AREA: [], ENERGY: []}
    for rival in track(rivals(), "units"):
        for column, mine, theirs in zip(ratios, (area, energy), figures(rival), strict=True):
            ratios[column].append(mine / theirs)
            yield Ours(f"M8W4 over {rival.name}", column, mine / theirs, "x")
    for column, values in ratios.items():
        yield Ours("M8W4", f"least {column}", min(values), "x")
        yield Ours("M8W4", f"largest {column}", max(values), "x")
    wide = figures(ours, "bfp", 8)
    for column, value, whole in zip(ratios, wide, (area, energy), strict=True):
        yield Ours("M8M8 over M8W4", column, value / whole, "x")


def _compared(model: str, scope: "Scope", tokens: int, mapping: StudyMapping) -> Iterator[tuple[str, dict[str, float]]]:
    """Rival → how many times as good Harmonia is."""
    ours = run(accelerator("harmonia"), model, FORMAT, scope, tokens, mapping)
    for rival in rivals():
        other = run(rival.machine, model, f"bfp:g64:m{rival.mantissa}", scope, tokens, mapping)
        speed = other.seconds / ours.seconds
        yield rival.name, {SPEED: speed, AREA: speed * other.mm2 / ours.mm2, ENERGY: other.joules / ours.joules}


def _system(track: Track, scope: "Scope") -> Iterator[Ours]:
    """Rivals, each the average of all models, and the extremes."""
    for mapping in MAPPINGS:
        ratios: Ratios = {}
        for model in track(MODELS, f"models{mapping.ending}"):
            for rival, of_model in _compared(model, scope, SEQUENCE, mapping):
                for column, value in of_model.items():
                    ratios.setdefault(rival, {}).setdefault(column, []).append(value)
        for name, columns in ratios.items():
            for column, values in columns.items():
                yield Ours(f"over {name}{mapping.ending}", column, mean(values), "x")
        yield from _extremes(ratios, mapping)


def _extremes(ratios: Ratios, mapping: StudyMapping) -> Iterator[Ours]:
    for column in COLUMNS:
        averages = [mean(columns[column]) for columns in ratios.values()]
        largest = max(max(columns[column]) for columns in ratios.values())
        extremes = {LEAST: min(averages), MOST: max(averages), ALL: mean(averages), LARGEST: largest}
        yield from (Ours(f"{row}{mapping.ending}", column, value, "x") for row, value in extremes.items())


@explained(CAUSES["fig16-linear"])
def linear(track: Track) -> Iterator[Ours]:
    yield from _system(track, "linear")


@explained(CAUSES["fig16-joint"])
def joint(track: Track) -> Iterator[Ours]:
    yield from _system(track, "all")


@explained(CAUSES["fig19"])
def figure_19(track: Track) -> Iterator[Ours]:
    for mapping in MAPPINGS:
        extremes: dict[str, list[float]] = {SPEED: [], ENERGY: []}
        for tokens in track(LENGTHS, f"lengths{mapping.ending}"):
            for rival, ratios in _compared("Llama3.2-3B", "all", tokens, mapping):
                for column, values in extremes.items():
                    values.append(ratios[column])
                    yield Ours(f"{tokens} tokens over {rival}{mapping.ending}", column, ratios[column], "x")
        for column, values in extremes.items():
            yield Ours(f"2K to 16K{mapping.ending}", f"least {column}", min(values), "x")
            yield Ours(f"2K to 16K{mapping.ending}", f"largest {column}", max(values), "x")


@explained(CAUSES["synthesis"])
def synthesis(track: Track) -> Iterator[Ours]:
    (result,) = [run(accelerator("harmonia"), "Llama3.1-8B", FORMAT) for _ in track([0], "inference")]
    machine, watts = result.machine, result.watts
    yield Ours("Harmonia", "area", result.mm2, "mm2")
    yield Ours("Harmonia", "power", 1e3 * watts, "mW", "while it computes linear layers")
    for name, mode in (("M8W4 and M8M4", machine.modes[0]), ("M8M8", machine.modes[2])):
        rate = 2 * machine.units * machine.array.group / mode.cycles.fixed * machine.frequency
        yield Ours("Harmonia", name, rate / 1e9 / watts, "GOPS/W")
    for part, value in result.area.items():
        yield Ours(f"area of the {part}", "area", value, "mm2")


@explained(CAUSES["converter"])
def converter(track: Track) -> Iterator[Ours]:
    from ....simulate.arrays.costs import CONVERTER, area

    (quantiser, ours) = (area(accelerator(name))[CONVERTER] for name in track(["m-ant", "harmonia"], "converters"))
    yield Ours("online quantiser over BFP converter", "area", quantiser / ours, "x", "of as many values at once")


RIVALS_NOTE = (
    "Rivals have arrays of the same area in the same technology, and the same memories; those that do not attend have "
    "an FP16 array beside theirs. FIGNA-C is not described: taken as FIGNA with 8 bits. Nor is it said which mantissas "
    "Anda has: 4, 6 and 8 here."
)
RTL = (
    "Areas and energies of all units, converters and the offset unit are those of our RTL, synthesised in cells of "
    "7 nm (ASAP7) with clock gates and scaled to 28 nm by Stillmaker and Baas: cells alone, no wires. FP16 units sum "
    "in FP16: the text says FP16 of products, nothing of sums."
)
AUXILIARY_NOTE = "The size of the FP16 array beside rivals is fitted to two cells: the least speed-ups here and in {}."
MODELS_NOTE = "The paper's eight models are not listed; ours are the nine of its Tables I and II."
HARDWARE = (
    PAPER.item(
        "fig1",
        "shares of attention and of the KV cache by length",
        "exact",
        figure_1,
        ("The figure's values are not in its text.",),
    ),
    PAPER.item(
        "fig17",
        "units: area and energy efficiency",
        "simulated",
        figure_17,
        (
            RIVALS_NOTE,
            RTL,
            "M8M8 shares what it does once a group, so its energy is less than doubled here.",
        ),
    ),
    PAPER.item(
        "fig16-linear",
        "speed-up, area and energy efficiency of linear layers, 2048 tokens",
        "simulated",
        linear,
        (
            RIVALS_NOTE,
            RTL,
            MAPPINGS_NOTE,
            MODELS_NOTE,
            "With arrays of equal area and equal memories, area efficiency is the speed-up but for the converter: 4.89 "
            "and 3.91 do not go together.",
        ),
    ),
    PAPER.item(
        "fig16-joint",
        "speed-up, area and energy efficiency with attention, 2048 tokens",
        "simulated",
        joint,
        (
            RIVALS_NOTE,
            RTL,
            MAPPINGS_NOTE,
            MODELS_NOTE,
            AUXILIARY_NOTE.format("fig19"),
            "The largest energy efficiency, 3.90, is below the largest average saving of energy, 3.99.",
        ),
    ),
    PAPER.item(
        "fig19",
        "Llama-3.2-3B from 2K to 16K tokens",
        "simulated",
        figure_19,
        (
            RIVALS_NOTE,
            RTL,
            MAPPINGS_NOTE,
            AUXILIARY_NOTE.format("fig16-joint"),
            "The FP16 array beside a rival's must be slow for 2.17 and 2.50 at 2K; then speed-ups at 16K, where half "
            "of the products are attention's, exceed 4.14. And 4.14 is below the 4.62 over FP16 arrays at 2K, which "
            "length hardly changes.",
        ),
    ),
    PAPER.item(
        "synthesis",
        "area, power and peak efficiency",
        "simulated",
        synthesis,
        (
            RTL,
            "Buffers of 1 MiB each are assumed, the paper does not say.",
            "No blind test: that a PE is two columns to its buffers was read with the 542 mW in sight, and what a PE "
            "holds with the 4.85 of figure 17.",
            "4534 GOPS/W × 0.542 W are 32 products a PE and cycle; its 128 of section V-C take four cycles.",
        ),
    ),
    PAPER.item(
        "converter",
        "the converter beside an online quantiser",
        "simulated",
        converter,
        (
            RTL,
            "The quantiser is M-ANT's as far as the text tells: the largest of 64 values, a division, a product and a "
            "rounding, eight values a cycle.",
        ),
    ),
)
