"""`tilepress simulate array` and `compare`: accelerators for block floating point and their rivals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import accelerators, transformers, weight_formats
from .output import Json, Recorder, figure_text, metric_text, print_table, progress, show_declared
from .report import write_page

if TYPE_CHECKING:
    from ..hardware import Accelerator
    from ..records import Label
    from ..simulate.arrays import Mapper, Result, Task
    from ..simulate.arrays.compare import Figures, Setting
    from ..simulate.arrays.plan import Order as Given

Model = Annotated[
    str, typer.Option(autocompletion=transformers, help="A model by its name, or a Hugging Face folder or config.json.")
]
ACTIVATIONS = "anda:8,8,8,8"
Activations = Annotated[
    str | None,
    typer.Option("--acts", help="bfp:g32:m8, or anda:7,7,6,5, of arrays that take them; eight bits if not given."),
]
Weights = Annotated[str, typer.Option(autocompletion=weight_formats, help="int4:g128, say; of INT8 machines int8.")]
Batch = Annotated[int, typer.Option(help="Sequences at once.")]


LOGIC_NOTE = (
    "logic: where areas and energies of an array's units and of DECA's logic come from: our RTL, synthesised in cells "
    "of 7 nm, or given by the machine's description"
)


class MappingKind(StrEnum):
    pinned = "pinned"
    best = "best"


class Objective(StrEnum):
    time = "time"
    energy = "energy"
    edp = "edp"


MappingOption = Annotated[
    MappingKind | None,
    typer.Option(
        help="Tiles and their order: pinned as the machine's description has them, or the best. Both if not given."
    ),
]
ObjectiveOption = Annotated[
    Objective, typer.Option(help="Of the best mapping: least time, energy, or energy times delay, of each product.")
]


class Stage(StrEnum):
    prefill = "prefill"
    decode = "decode"


class Scope(StrEnum):
    linear = "linear"
    attention = "attention"
    all = "all"


class Order(StrEnum):
    column = "column-major"
    row = "row-major"


def array(
    machine: Annotated[
        str, typer.Argument(autocompletion=accelerators, help="anda, harmonia, figna …, or a YAML file.")
    ] = "anda",
    model: Model = "llama-13b",
    stage: Annotated[Stage, typer.Option(help="A whole prompt, or the token after it.")] = Stage.prefill,
    tokens: Annotated[int, typer.Option(help="Of the prompt.")] = 2048,
    batch: Batch = 1,
    acts: Activations = None,
    weights: Weights = "int4:g128",
    kv: Annotated[str, typer.Option(help="Format of keys and values; the machine's own if not given.")] = "",
    scope: Annotated[Scope, typer.Option(help="Which products count.")] = Scope.all,
    head: Annotated[bool, typer.Option("--head", help="The last matrix, over the vocabulary, too.")] = False,
    products_only: Annotated[
        bool, typer.Option("--products-only", help="What follows the array takes no time, as in the papers.")
    ] = False,
    mapping: MappingOption = None,
    objective: ObjectiveOption = Objective.edp,
    order: Annotated[Order | None, typer.Option(help="Of tiles, instead of the machine's own, or of both.")] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Show every product: its time, energy, traffic, tile, and what bounds it.")
    ] = False,
    list_machines: Annotated[bool, typer.Option("--list", help="Only list machines.")] = False,
    fitted: Annotated[
        bool, typer.Option("--fitted", help="Only list what was fitted, and what was chosen with which cells in sight.")
    ] = False,
    json: Json = False,
) -> None:
    """Simulate a model's matrix products on an accelerator: time, energy and area, by part.

    A machine is a YAML file (src/tilepress/hardware/accelerators); `like: anda` in one of yours takes all that it does
    not say from there. Attention goes to an FP16 array beside those that cannot do it. Products are mapped twice: in
    the machine's own order and tiles, as papers pin them, and in the best of all.

    Example: tilepress simulate array harmonia --model llama3.2-3b --tokens 8192 --each
    """
    if fitted or list_machines:
        (_fitted if fitted else _machines)(json)
        return
    from ..hardware import read_accelerator
    from ..simulate.arrays import Task, simulate
    from ..simulate.layers import find_transformer

    design = read_accelerator(machine)
    _check_taken(design, acts)
    formats = (acts or ACTIVATIONS, weights, kv)
    task = Task(find_transformer(model), stage.value, tokens, batch, *formats, scope.value, head, products_only)
    with progress(json) as bar:
        bar.add_task("simulating", total=None)
        results: dict[str, Result] = {
            one.name: simulate(design, task, one) for one in _mappers(mapping, objective, order)
        }
    labels = {"design": design.name, "model": task.model.name, "stage": stage.value}
    recorder = Recorder("simulated", **labels, tokens=tokens, batch=batch)
    for name, result in results.items():
        _record(recorder, result, name)
        if each:
            _record_each(recorder, result, name)
    if json:
        recorder.print_json()
        return
    _print_results(f"{design.name}, {task.model.name}, {stage.value} {tokens}, batch {batch}", recorder, list(results))
    if each:
        _print_each(results)


def compare(
    machines: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=accelerators, help="Accelerators, and deca: a CPU with it. The four designs if none."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="As of `array`; llama3.2-3b if not given, or that of --quality.")
    ] = None,
    tokens: Annotated[str, typer.Option(help="Lengths of prompts.")] = "2048,8192,32768,131072",
    batch: Batch = 1,
    acts: Activations = None,
    weights: Weights = "int4:g128",
    node: Annotated[float, typer.Option(help="nm of all arrays.")] = 16,
    voltage: Annotated[float, typer.Option(help="Of all arrays.")] = 0.8,
    frequency: Annotated[float, typer.Option(help="MHz of all arrays.")] = 285,
    bandwidth: Annotated[float, typer.Option(help="GB/s of everybody's memory.")] = 256,
    area: Annotated[float, typer.Option(help="mm² of every array; 0 leaves them as they come.")] = 0.41,
    mapping: MappingOption = None,
    objective: ObjectiveOption = Objective.edp,
    quality: Annotated[
        Path | None,
        typer.Option(help="Losses of a model by window and format (benchmarks/activations.py): adds a Pareto front."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write plots to this HTML file.")] = None,
    json: Json = False,
) -> None:
    """Accelerators and a CPU with DECA side by side: one model, one technology, arrays of one size, one memory.

    Arrays are shown in their own mapping and in the best one. The CPU keeps its 56 cores and its clock; what cores and
    caches cost in energy and area is not in its figures. With --quality, formats whose loss was measured become points,
    one for each machine that takes them, with time and energy of the same model in the best mapping, for a prompt as
    long as a window. The front is what no other point beats; losses differ where they do by more than two standard
    errors, paired by window.

    Example: tilepress simulate compare anda harmonia --tokens 2048,16384
    """
    from ..simulate.arrays.compare import DECA, Setting, points
    from ..simulate.arrays.compare import compare as compare_all
    from .quality import check_model, print_points, read_quality, record_points

    losses = read_quality(quality) if quality else None
    simulated = check_model(losses, model) if losses else model or "llama3.2-3b"
    names = machines or ["anda", "harmonia", "figna", DECA]
    setting = Setting(node, voltage, 1e6 * frequency, 1e9 * bandwidth, area=area)
    recorder, tasks = Recorder("simulated"), _tasks(simulated, tokens, batch, acts or ACTIVATIONS, weights)
    mappers = _mappers(mapping, objective)
    with progress(json) as bar:
        followed = bar.track(tasks, description="simulating")
        figures = [one for task in followed for one in compare_all(names, [task], setting, mappers)]
    arrays = [name for name in names if name != DECA]
    with progress(json) as bar:
        bar.add_task("simulating formats", total=None, visible=losses is not None)
        prompt = replace(tasks[0], tokens=losses.tokens) if losses else tasks[0]
        candidates = points(arrays, losses.measured if losses else [], prompt, setting, mappers[-1])
    _record_figures(recorder, tasks[0].model.name, figures)
    if losses:
        record_points(recorder, prompt, candidates)
    write_page(html, "Designs side by side", recorder.records, with_explorer=False)
    if json:
        recorder.print_json()
        return
    _print_figures(tasks[0].model.name, figures, setting)
    if losses and candidates:
        print_points(prompt, candidates)


def _check_taken(machine: "Accelerator", acts: str | None) -> None:
    """A format that a machine would not look at is refused."""
    if acts and acts != machine.stores and machine.stores != "bfp":
        raise ValueError(f"{machine.name} takes activations in {machine.stores}, not {acts}: leave --acts out")


def _mappers(mapping: MappingKind | None, objective: Objective, order: Order | None = None) -> "list[Mapper]":
    from ..simulate.arrays import Mapper

    given: Given | None = order.value if order else None
    pinned, best = Mapper(None, given), Mapper(objective.value, given)
    return {None: [pinned, best], MappingKind.pinned: [pinned], MappingKind.best: [best]}[mapping]


def _tasks(model: str, tokens: str, batch: int, acts: str, weights: str) -> "list[Task]":
    from ..simulate.arrays import Task
    from ..simulate.layers import find_transformer

    transformer = find_transformer(model)
    lengths = [part.strip() for part in tokens.split(",")]
    if not all(length.isdecimal() for length in lengths):
        raise ValueError(f"--tokens needs lengths with commas between, 2048,8192 say, not {tokens!r}")
    return [Task(transformer, stage.value, int(length), batch, acts, weights) for stage in Stage for length in lengths]


def _record(recorder: Recorder, result: "Result", mapping: str) -> None:
    recorder.add("time", 1e3 * result.seconds, "ms", mapping=mapping)
    recorder.add("rate", result.operations / result.seconds / 1e12, "TOPS", mapping=mapping)
    recorder.add("utilisation", 100 * result.utilisation, "%", mapping=mapping)
    recorder.add("dram", result.dram_bytes / 1e9, "GB", mapping=mapping)
    recorder.add("power", 1e3 * result.watts, "mW", mapping=mapping)
    recorder.add("energy", 1e3 * result.joules, "mJ", mapping=mapping)
    for part, joules in result.energy.items():
        recorder.add("energy", 1e3 * joules, "mJ", mapping=mapping, part=part)
    recorder.add("area", result.mm2, "mm2", mapping=mapping)
    for part, mm2 in result.area.items():
        recorder.add("area", mm2, "mm2", mapping=mapping, part=part)


def _record_each(recorder: Recorder, result: "Result", mapping: str) -> None:
    for one in result.products:
        labels: dict[str, Label] = {"mapping": mapping, "product": one.name}
        recorder.add("time", 1e3 * one.cycles / result.machine.frequency, "ms", **labels)
        recorder.add("energy", 1e3 * one.joules, "mJ", **labels)
        recorder.add("dram", one.dram_bytes / 1e9, "GB", **labels)
        recorder.add("utilisation", 100 * one.utilisation, "%", **labels)
        recorder.add("bound", f"{one.bound} ({one.plan.machine.name}, {one.plan.tile})", **labels)


def _print_results(title: str, recorder: Recorder, mappings: "Sequence[str]") -> None:
    """One column for each mapping."""
    known = ("design", "model", "stage", "tokens", "batch", "mapping")
    rows: dict[tuple[str, str], list[str]] = {}
    for one in recorder.records:
        if "product" not in one.labels:
            rows.setdefault((metric_text(one, known), one.unit), []).append(figure_text(one.value))
    cells = [[what, *values, unit] for (what, unit), values in rows.items()]
    print_table(title, ["what", *mappings, "unit"], cells)


def _print_each(results: "Mapping[str, Result]") -> None:
    rows = [
        [
            one.name,
            name,
            one.plan.tile,
            one.bound,
            figure_text(1e3 * one.cycles / result.machine.frequency),
            figure_text(1e3 * one.joules),
            figure_text(one.dram_bytes / 1e9),
            figure_text(100 * one.utilisation),
        ]
        for products in zip(*(result.products for result in results.values()), strict=True)
        for one, (name, result) in zip(products, results.items(), strict=True)
    ]
    columns = ["product", "mapping", "tile", "bound by", "ms", "mJ", "GB of DRAM", "utilisation, %"]
    print_table("Products", columns, rows, words=4)


def _record_figures(recorder: Recorder, model: str, figures: "Sequence[Figures]") -> None:
    for one in figures:
        task: dict[str, Label | None] = {"model": model, "stage": one.stage, "tokens": one.tokens}
        labels = {"design": one.design, "mapping": one.mapping or None, "logic": one.logic, **task}
        recorder.add("time", 1e3 * one.seconds, "ms", **labels)
        recorder.add("energy", 1e3 * one.joules, "mJ", **labels)
        recorder.add("energy", 1e3 * one.dram_joules, "mJ", part="DRAM", **labels)
        recorder.add("area", one.mm2, "mm2", **labels)


def _print_figures(model: str, figures: "Sequence[Figures]", setting: "Setting") -> None:
    rows = [
        [
            f"{one.stage}, {one.tokens} tokens",
            one.design,
            one.mapping,
            one.logic,
            figure_text(1e3 * one.seconds),
            ("> " if one.partly else "") + figure_text(1e3 * one.joules),
            figure_text(1e3 * one.dram_joules),
            ("> " if one.partly else "") + figure_text(one.mm2),
        ]
        for one in figures
    ]
    title = f"{model}, {setting.node:g} nm, {setting.bandwidth / 1e9:g} GB/s"
    print_table(title, ["task", "design", "mapping", "logic", "ms", "mJ", "of memory", "mm2"], rows, words=4)
    print(f"  {LOGIC_NOTE}")
    for design, note in {one.design: one.partly for one in figures if one.partly}.items():
        print(f"  {design}: {note}")


def _machines(json: bool) -> None:
    from ..hardware import accelerator_names, read_accelerator

    recorder, designs = Recorder(), [read_accelerator(name) for name in accelerator_names()]
    for one in designs:
        recorder.add("title", one.title, "", "model", design=one.name)
    if json:
        recorder.print_json()
        return
    rows = [
        [one.name, one.title, f"{one.array.rows} × {one.array.columns}", f"{one.node:g}", f"{one.frequency / 1e6:g}"]
        for one in designs
    ]
    print_table("Accelerators", ["name", "what", "units", "nm", "MHz"], rows, words=2)


def _fitted(json: bool) -> None:
    from ..simulate.arrays import CHOICES, FITTED

    show_declared(Recorder(), "arrays", FITTED, CHOICES, json)
