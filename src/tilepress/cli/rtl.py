"""`tilepress rtl`: hardware of the papers' units, as Verilog and synthesised."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._extras import need_rtl
from .._files import write_text
from .output import Json, Recorder, progress, show_figures

if TYPE_CHECKING:
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
def synth(
    name: Name,
    set_: Settings = None,
    liberty: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Cells to map to: a Liberty file, .xz and .gz too; several files of one library."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Count what a unit costs: with a library of cells their area and the longest path, else gates. Memories are left
    as they are and counted in bits.

    Example: tilepress rtl synth deca-pe --set W=1 --set L=1 --set formats=mxfp4
    """
    unit = _unit(name, set_)
    from ..rtl.synthesis import synthesize

    with progress(json) as bar:
        bar.add_task("synthesising", total=None)
        result = synthesize(unit, liberty or ())
    recorder = Recorder("model", unit=name, **unit.settings)
    units = {"memory_bits": "bit", "delay": "ps", "area": "of the library"}
    for metric, value in vars(result).items():
        if value is not None:
            recorder.add(metric, value, units.get(metric, ""))
    show_figures(recorder, name, ("unit", *unit.settings), json)


def _unit(name: str, settings: list[str] | None) -> "Unit":
    need_rtl("`tilepress rtl`")
    from ..rtl.units import unit_of

    return unit_of(name, settings or ())
