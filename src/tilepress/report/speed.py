"""How fast it runs: whole models, linear layers, attention and packing, with machines and peers."""

from collections.abc import Sequence
from dataclasses import replace

from ..records import Record
from .blocks import Plot, Section, Sources, number
from .catalogue import ATTENTION, DEMO, LARGE, LATENCIES, LINEAR, MACHINES, MODELS, PACKING, PROMPTS, SERVING
from .families import Figure, read, shortened, table
from .plots import bars

ABOUT = "× PEER says how many times as fast as that peer; both ran in turns in one process. ± is a standard deviation."


def speed_section(records: Sequence[Record]) -> Section | None:
    models, linear = read(MODELS, records), read(LINEAR, records)
    candidates = [
        *_demonstrated(read(DEMO, records)),
        *_models(models),
        table(MODELS, models),
        table(LARGE, read(LARGE, records)),
        table(LATENCIES, read(LATENCIES, records)),
        table(SERVING, read(SERVING, records)),
        *_layers(linear),
        table(LINEAR, linear),
    ]
    candidates += [table(family, read(family, records)) for family in (ATTENTION, PROMPTS, PACKING, MACHINES)]
    blocks = [block for block in candidates if block is not None]
    return Section("speed", "Speed", ABOUT, blocks, open=2) if blocks else None


def _demonstrated(figures: Sequence[Figure]) -> list[Plot]:
    """Ours are those that were judged beside what they came from."""
    ours = {one.words["model"] for one in figures if one.metric == "kl_divergence"}
    rates = [one for one in figures if one.metric == "decode"]
    machines = dict.fromkeys(one.record.machine for one in rates)
    of = {machine: [one for one in rates if one.record.machine == machine] for machine in machines}
    return [_race(f"Decoding before and after: {machine}", of[machine], "model", ours) for machine in machines]


def _models(figures: Sequence[Figure]) -> list[Plot]:
    """Decoding at the first point of each run that has several models."""
    plots = []
    for machine, command in dict.fromkeys((one.record.machine, one.record.command) for one in figures):
        run = [one for one in figures if (one.record.machine, one.record.command) == (machine, command)]
        rates = [one for one in run if one.metric == "decode"]
        at = next(((one.words["depth"], one.words["batch"]) for one in rates), None)
        here = [one for one in rates if (one.words["depth"], one.words["batch"]) == at]
        if at is None or sum(not one.is_error for one in here) < 2:
            continue
        ours = {one.words["model"] for one in run if one.metric == "decode_speedup"}
        title = f"Decoding after {at[0]} tokens, batch {at[1]}: {machine}"
        plots.append(replace(_race(title, here, "model", ours), note=shortened(command)))
    return plots


def _race(title: str, figures: Sequence[Figure], word: str, ours: set[str]) -> Plot:
    """Bars of ours and of peers, where that is known."""
    values = [one for one in figures if not one.is_error]
    errors = {one.words[word]: number(one.record.value) for one in figures if one.is_error}
    series, spread = {}, {}
    for who, mine in (("Tilepress", True), ("peers", False)):
        points = [(one.words[word], number(one.record.value)) for one in values if (one.words[word] in ours) == mine]
        if points:
            series[who if ours else "all"] = points
            spread[who if ours else "all"] = [errors.get(label) for label, _ in points]
    sources = Sources.of(one.record for one in figures)
    return bars(title, values[0].record.unit, series, sources, errors=spread, stacked=True)


def _layers(figures: Sequence[Figure]) -> list[Plot]:
    """The time of the largest layer with the fewest rows, on each machine."""
    plots = []
    times = [one for one in figures if one.metric == "time" and number(one.record.value) is not None]
    for machine in dict.fromkeys(one.record.machine for one in times):
        here = [one for one in times if one.record.machine == machine]
        shape = max((one.words["shape"] for one in here), key=_weights)
        batch = min((one.words["batch"] for one in here if one.words["shape"] == shape), key=int)
        shown = [one for one in here if (one.words["shape"], one.words["batch"]) == (shape, batch)]
        if len(shown) < 2:
            continue
        ours = {one.words["weights"] for one in figures if one.metric == "speedup"}
        title = f"A layer of {shape.replace('x', '×')}, batch {batch}: {machine}"
        plots.append(_race(title, shown, "weights", ours))
    return plots


def _weights(shape: str) -> int:
    neurons, _, inputs = shape.partition("x")
    return int(neurons) * int(inputs)
