"""Figure 18: where the energy of each accelerator goes, and how fast it is."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from ...item import Ours, Track
from ...published import read_paper
from ...studies.arrays import accelerator, run
from .hardware import FORMAT, MODELS, MODELS_NOTE, RIVALS_NOTE, SPEED
from .rivals import Rival, rivals

if TYPE_CHECKING:
    from ....simulate.arrays import Result
    from ....simulate.arrays.workload import Scope

PAPER = read_paper("harmonia")
BASELINE = "fp16-fp16"
PARTS = ("compute", "SRAM", "DRAM")
TOTAL = "total"
SCOPES: "dict[str, Scope]" = {"linear": "linear", "joint": "all"}


def figure18(track: Track) -> Iterator[Ours]:
    """Averages of models, each relative to its FP16-FP16 array: energy by part, and speed."""
    machines = [Rival("harmonia", accelerator("harmonia"), 8), *rivals()]
    for name, scope in SCOPES.items():
        results = {model: [_run(one, model, scope) for one in machines] for model in track(MODELS, name)}
        for number, one in enumerate(machines):
            runs = [(of_all[number], of_all[_baseline(machines)]) for of_all in results.values()]
            yield from _bar(f"{name}, {one.name}", runs)
        yield from _memory(name, machines, list(results.values()))


def _bar(row: str, runs: "Sequence[tuple[Result, Result]]") -> Iterator[Ours]:
    """A stacked bar of the figure; `runs`: of each model, with those of the baseline."""
    for part in PARTS:
        share = mean(ours.breakdown[part] / baseline.joules for ours, baseline in runs)
        yield Ours(row, part, share, "x", f"of {BASELINE}'s total")
    yield Ours(row, TOTAL, mean(ours.joules / baseline.joules for ours, baseline in runs), "x")
    yield Ours(row, SPEED, mean(baseline.seconds / ours.seconds for ours, baseline in runs), "x")


def _memory(scope: str, machines: Sequence[Rival], results: "Sequence[Sequence[Result]]") -> Iterator[Ours]:
    """What the text says of memory: that of machines with short mantissas over that of FP16 activations, at worst."""
    stores = [one.machine.stores for one in machines]
    drams = [[result.breakdown["DRAM"] for result in of_all] for of_all in results]
    for number, one in enumerate(machines):
        if stores[number] == "bfp":
            ratios = [
                mine[number] / mine[other] for mine in drams for other, kind in enumerate(stores) if kind == "fp16"
            ]
            yield Ours(f"{scope}, {one.name} over FP16 activations", "DRAM", max(ratios), "x", "largest of any rival")


def _run(rival: Rival, model: str, scope: "Scope") -> "Result":
    format = FORMAT if rival.name == "harmonia" else f"bfp:g64:m{rival.mantissa}"
    return run(rival.machine, model, format, scope)


def _baseline(machines: Sequence[Rival]) -> int:
    return [one.name for one in machines].index(BASELINE)


ENERGY = (
    PAPER.item(
        "fig18",
        "energy of compute, SRAM and DRAM, and speed-up, 2048 tokens",
        "simulated",
        figure18,
        (
            RIVALS_NOTE,
            MODELS_NOTE,
            "The figure's values are not in its text: the paper's cells are what it says in words of memory.",
        ),
        seconds=3,
    ),
)
