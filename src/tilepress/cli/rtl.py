"""`tilepress rtl`: hardware of the papers' units, as Verilog and synthesised."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._extras import need_rtl
from .._files import write_text
from .completion import EMBEDDED
from .output import Json, Recorder, figure_text, print_table, progress, show_figures

if TYPE_CHECKING:
    from ..models.attention_sample import AttentionSample
    from ..rtl.energy import Measured
    from ..rtl.synthesis import Options, Synthesis
    from ..rtl.units import Unit

app = typer.Typer(help="Make hardware of the papers' units.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="UNIT", help="The unit, deca-pe say; docs/rtl.md lists them.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the unit, W=8 say; may be given several times."),
]


@app.callback()
def _group() -> None:
    """Make hardware of the papers' units."""


@app.command()
def emit(
    name: Name,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The Verilog file to write.")],
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Write a unit as synthesizable Verilog, after Yosys has checked it for loops and for wires without a driver.

    Example: tilepress rtl emit deca-pe -o deca.v --set W=8 --set L=4 --set formats=bf8,mxfp4
    """
    unit = _unit(name, set_)
    from ..rtl.verilog import verilog_of

    with progress(json) as bar:
        bar.add_task("writing", total=None)
        text = verilog_of(unit)
    write_text(out, text)
    recorder = Recorder("model", unit=name, **unit.settings)
    recorder.add("lines", text.count("\n"))
    recorder.add("modules", text.count("\nmodule "))
    show_figures(recorder, f"{out}: {name}", ("unit", *unit.settings), json)


@app.command()
def draw(
    name: Name,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="A .dot, .svg, .png or .pdf to write.")],
    set_: Settings = None,
    depth: Annotated[
        int | None, typer.Option(min=0, help="Levels of submodules to open; if none, as many as read well.")
    ] = None,
    part: Annotated[
        str, typer.Option(metavar="PATH", help="A submodule in the place of the unit, scaling.lane_0 say.")
    ] = "",
    json: Json = False,
) -> None:
    """Draw a unit's block diagram from its design: as Graphviz's text, or as a picture where Graphviz is installed.

    Example: tilepress rtl draw harmonia-pe -o pe.dot
    """
    unit = _unit(name, set_)
    from ..rtl.drawing import check_ending, diagram_of, modules_of, part_of, write
    from ..rtl.verilog import module_name

    check_ending(out)
    with progress(json) as bar:
        bar.add_task("drawing", total=None)
        modules = modules_of(unit.component(), module_name(unit))
        graph, dot = diagram_of(modules, part_of(modules, module_name(unit), part), depth)
    write(dot, out, f"{name} {part}".strip())
    recorder = Recorder("model", unit=name, **unit.settings, **({"part": part} if part else {}))
    recorder.add("boxes", len(graph.boxes))
    recorder.add("arrows", len(graph.arrows))
    show_figures(recorder, f"{out}: {name}", ("unit", *unit.settings), json)


@app.command()
def synth(
    name: Name,
    set_: Settings = None,
    liberty: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Cells to map to: a Liberty file, .xz and .gz too; several files of one library."
        ),
    ] = None,
    size: Annotated[
        bool, typer.Option("--size", help="With --liberty: let ABC choose the sizes of cells, for a shorter path.")
    ] = False,
    gate_clocks: Annotated[
        bool,
        typer.Option(
            "--gate-clocks/--no-gate-clocks",
            help="With --liberty: stop clocks of registers that keep their value, if the library has a cell for it.",
        ),
    ] = True,
    energy: Annotated[
        bool, typer.Option("--energy", help="Simulate the cells, and say what an operation takes; needs --liberty.")
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --energy: only this case, m=8 say; may be given several times."),
    ] = None,
    clock: Annotated[
        float, typer.Option(metavar="PS", help="With --energy: the clock's period, in which cells leak.")
    ] = 1000.0,
    slew: Annotated[
        float, typer.Option(metavar="PS", help="With --energy: how long a rise or a fall of an input takes.")
    ] = 20.0,
    node: Annotated[
        float | None,
        typer.Option(metavar="NM", help="With --energy: the library's technology, which memories are scaled to."),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="With --energy: random numbers, not those of smollm2-135m on a text.")
    ] = False,
    json: Json = False,
) -> None:
    """Count what a unit costs: with a library of cells their area and the longest path, else gates. Memories are left
    as they are and counted in bits. With --energy, what an operation takes, by the toggles of real data.

    Example: tilepress rtl synth deca-pe --set W=1 --set L=1 --set formats=mxfp4
    """
    unit = _unit(name, set_)
    from ..rtl.synthesis import Options, synthesize

    options = Options(size=size, gate_clocks=gate_clocks)
    measured: list[Measured] = []
    with progress(json) as bar:
        bar.add_task("measuring" if energy else "synthesising", total=None)
        if energy:
            costs, measured = _measure(unit, liberty or (), options, (slew, clock, node), case or (), random)
        else:
            costs = synthesize(unit, liberty or (), options)
    recorder = Recorder("model", unit=name, **unit.settings, **options.labels)
    units = {"memory_bits": "bit", "delay": "ps", "area": "of the library"}
    for metric, value in vars(costs).items():
        if value is not None:
            recorder.add(metric, value, units.get(metric, ""))
    if not json:
        show_figures(recorder, name, ("unit", *unit.settings), json)
        _print_energies(measured, clock)
        return
    for one in measured:
        for metric, labels, value, its_unit in one.figures():
            recorder.add(metric, value, its_unit, "simulated", **labels)
    recorder.print_json()


def _measure(
    unit: "Unit",
    liberty: Sequence[Path],
    options: "Options",
    conditions: tuple[float, float, float | None],
    only: Sequence[str],
    random: bool,
) -> "tuple[Synthesis, list[Measured]]":
    from ..rtl.energy import RANDOM, Conditions, Operands, measure, random_operands

    given = Conditions(*conditions, data=RANDOM if random else EMBEDDED)
    operands = random_operands() if random else Operands(**vars(_sample()))
    costs, measured = measure(unit, liberty, operands, given, only, options)
    return costs, list(measured)


def _sample() -> "AttentionSample":
    """Of the embedded model on the calibration text."""
    from ..models import load_model
    from ..models.attention_sample import attention_sample
    from ..models.texts import calibration_text

    loaded = load_model(EMBEDDED)
    return attention_sample(loaded.model, loaded.tokenizer, calibration_text(None)[1])


def _print_energies(measured: "Sequence[Measured]", clock: float) -> None:
    if not measured:
        return
    parts = list(measured[0].energy.parts)
    rows = [
        [one.case.name, one.case.operation, f"{one.cycles:.1f}", figure_text(one.energy.total), *_per_item(one)]
        + [f"{value / one.energy.total:.1%}" for value in one.energy.parts.values()]
        for one in measured
    ]
    columns = ["case", "operation", "cycles", "pJ", "pJ an item", *parts]
    print_table(f"Energy of an operation, cycles of {clock:g} ps", columns, rows, words=2)


def _per_item(one: "Measured") -> list[str]:
    return [f"{figure_text(one.energy.total / one.case.items)} a {one.case.item}"]


@app.command()
def check(name: Name, json: Json = False) -> None:
    """Prove what must hold of a unit in every state, whatever comes at its inputs: of a small one, with Yosys' ABC.

    Example: tilepress rtl check anda-compressor
    """
    need_rtl("`tilepress rtl`")
    from ..rtl.checking import prove
    from ..rtl.monitors import monitors_of

    recorder, proofs = Recorder("model", unit=name), []
    with progress(json) as bar:
        for monitor, make in monitors_of(name).items():
            bar.add_task(f"proving {monitor}", total=None)
            proofs.append(prove(monitor, make()))
    for proof in proofs:
        for metric, value, unit in proof.figures:
            recorder.add(metric, value, unit, monitor=proof.monitor)
        if not json:
            print(f"{proof.monitor}:", *proof.properties, sep="\n  - ")
    show_figures(recorder, name, ("unit",), json)


@app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The YAML file to write.")],
    set_: Settings = None,
    component: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="The component's name, system.mac say; the unit's if none."),
    ] = None,
    json: Json = False,
) -> None:
    """Write what a unit cost when it was synthesised as tables for Accelergy and Timeloop: area, and energy where it is
    known. Designs are those that Tilepress keeps, in ASAP7's cells.

    Example: tilepress rtl export anda-apu -o apu.yaml --set mantissa=8
    """
    from ..hardware.accelergy import tables
    from ..hardware.synthesised import cost

    design = cost(name, _mapping(set_ or ()))
    write_text(out, tables(design, component or name))
    recorder = Recorder("model", unit=name, **design.settings)
    recorder.add("area", design.area, "um2")
    show_figures(recorder, f"{out}: {name}", ("unit", *design.settings), json)


def _mapping(settings: Sequence[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in settings]
    for setting, (_, equals, _) in zip(settings, pairs, strict=True):
        if not equals:
            raise ValueError(f"{setting!r} sets nothing: write mantissa=8, say")
    return {key: value for key, _, value in pairs}


def _unit(name: str, settings: list[str] | None) -> "Unit":
    need_rtl("`tilepress rtl`")
    from ..rtl.units import unit_of

    return unit_of(name, settings or ())
