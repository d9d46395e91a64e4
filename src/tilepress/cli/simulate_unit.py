"""`tilepress simulate unit`: one unit of an accelerator on numbers, beside what formats and kernels give for them."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import weight_formats
from .output import Json, Recorder, metric_text, print_table, progress
from .simulate_unit_runs import RUNS
from .simulate_unit_settings import DecaSettings, Outcome, Settings

if TYPE_CHECKING:
    from torch import Tensor


class UnitName(StrEnum):
    apu = "anda-apu"
    compressor = "anda-compressor"
    deca_pe = "deca-pe"
    pe = "harmonia-pe"
    converter = "harmonia-converter"
    offsets = "harmonia-offsets"
    fp_fp = "fp-fp"
    fp_int = "fp-int"
    figna = "figna"
    fp16_mac = "fp16-mac"
    int_mac = "int-mac"
    m_ant_mac = "m-ant-mac"
    int8_quantiser = "int8-quantiser"


class ModeName(StrEnum):
    m8w4 = "m8w4"
    m8m4 = "m8m4"
    m8m8 = "m8m8"


class PathName(StrEnum):
    channels = "channels"
    tokens = "tokens"


class WeightFormatName(StrEnum):
    fp16 = "fp16"
    int4 = "int4"


class ScaleName(StrEnum):
    offline = "offline"
    online = "online"


class SumName(StrEnum):
    fp32 = "fp32"
    fp16 = "fp16"


_DECA = (UnitName.deca_pe,)
# Which units an option is for; options that are not here are for all.
_OWN: dict[str, tuple[UnitName, ...]] = {
    "mantissa": (UnitName.apu, UnitName.compressor, UnitName.pe, UnitName.converter, UnitName.figna),
    "mode": (UnitName.pe,),
    "path": (UnitName.converter,),
    "sums": (UnitName.apu, UnitName.pe),
    "top": (UnitName.offsets,),
    "weight_format": (UnitName.fp16_mac,),
    "scale": (UnitName.int8_quantiser,),
    "groups": tuple(name for name in UnitName if name not in (UnitName.deca_pe, UnitName.m_ant_mac)),
    **dict.fromkeys(("weights", "density", "engine", "tiles", "latency", "squash_at", "packed", "layer"), _DECA),
}


def _check_options(context: typer.Context, name: UnitName) -> None:
    given = {one for one in context.params if getattr(context.get_parameter_source(one), "name", "") == "COMMANDLINE"}
    if "packed" in given and given & {"weights", "density", "data"}:
        raise ValueError("a packed file has its own weights: leave --weights, --density and --data out")
    if "layer" in given and "packed" not in given:
        raise ValueError("--layer names a matrix of a packed file: give --packed too")
    for option, units in _OWN.items():
        if option in given and name not in units:
            flag, owners = option.replace("_", "-"), ", ".join(one.value for one in units)
            raise ValueError(f"{name.value} has no --{flag}: that is for {owners}")


def unit(
    context: typer.Context,
    name: Annotated[UnitName, typer.Argument(help="The unit.", show_default=False)],
    mantissa: Annotated[
        int | None,
        typer.Option(min=1, help="Bits of magnitude: 8 if not given, FIGNA's 14; floats and integers have none."),
    ] = None,
    groups: Annotated[int, typer.Option(min=1, help="Groups of random values, if no data are given.")] = 16,
    mode: Annotated[ModeName, typer.Option(help="Of Harmonia's element.")] = ModeName.m8w4,
    path: Annotated[PathName, typer.Option(help="What Harmonia's converter groups.")] = PathName.channels,
    weight_format: Annotated[WeightFormatName, typer.Option(help="Of fp16-mac's weights.")] = WeightFormatName.fp16,
    scale: Annotated[
        ScaleName, typer.Option(help="Where int8-quantiser's scales come from: given, or of each group.")
    ] = ScaleName.offline,
    sums: Annotated[
        SumName, typer.Option(help="What anda-apu and harmonia-pe make of a group's sum; the papers have fp16.")
    ] = SumName.fp32,
    top: Annotated[int, typer.Option(min=0, help="Channels of keys that have an offset.")] = 4,
    weights: Annotated[
        str, typer.Option(autocompletion=weight_formats, help="The weight format of deca-pe.")
    ] = "mxfp4",
    density: Annotated[float, typer.Option(help="Share of weights that deca-pe's tiles keep; 1 is dense.")] = 1.0,
    engine: Annotated[str, typer.Option(help="deca-pe's width and tables: deca:wWIDTH:lTABLES.")] = "deca:w32:l8",
    tiles: Annotated[int, typer.Option(min=1, help="Tiles of deca-pe; of given weights, the first.")] = 8,
    latency: Annotated[int, typer.Option(min=1, help="Cycles from deca-pe's request to its line; L2 hits: 14.")] = 14,
    squash_at: Annotated[
        list[int] | None, typer.Option(min=1, help="In this cycle the core squashes deca-pe's tiles; repeatable.")
    ] = None,
    packed: Annotated[Path | None, typer.Option(help="A packed file, whose weights deca-pe takes.")] = None,
    layer: Annotated[str | None, typer.Option(help="The matrix in it, as inspect names it; the first.")] = None,
    data: Annotated[Path | None, typer.Option(help="Floats to take instead of random ones: a .npy file.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random values and weights.")] = 0,
    json: Json = False,
) -> None:
    """Step one unit through its cycles, and compare every bit with formats, tiles and kernels.

    Data are one row for units that multiply (for Harmonia's with m8m4 or m8m8 also two), an array of any shape for
    Anda's compressor, tokens by channels for the quantiser, Harmonia's converter and, at most 32 tokens, its offsets,
    weights of neurons by inputs for DECA's element. Weights of the others are random ones of four bits, of int-mac of
    eight. m-ant-mac takes one group of 64. The exit code is 1 if a bit differs.

    Example: tilepress simulate unit anda-apu --mantissa 5 --groups 32
    Example: tilepress simulate unit deca-pe --weights bf8 --density 0.3 --squash-at 100
    """
    _check_options(context, name)
    of_deca = DecaSettings(weights, density, engine, tiles, latency, tuple(squash_at or ()), packed, layer)
    kinds = (mode.value, path.value, weight_format.value, scale.value)
    settings = Settings(mantissa, groups, *kinds, sums.value, top, seed, _read(data), of_deca)
    with progress(json) as bar:
        bar.add_task("stepping", total=None)
        outcome = RUNS[name.value](name.value, settings)
    recorder = Recorder("simulated", unit=name.value, **outcome.labels)
    _record(recorder, outcome)
    _show(recorder, name, outcome, json)
    if outcome.equal is False:
        raise typer.Exit(1)


def _read(path: Path | None) -> "Tensor | None":
    if path is None:
        return None
    import numpy as np
    import torch

    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)  # its size is checked before anything is read
    except (EOFError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} is no .npy file of numbers: {error}") from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu" or not values.size:
        raise ValueError(f"{path} has no numbers: save a float array by numpy.save")
    with np.errstate(over="ignore"):
        halves = torch.from_numpy(values.astype(np.float16))
    if not halves.isfinite().all():
        raise ValueError(f"{path} has values that FP16 does not hold: finite ones of at most 65504 are needed")
    return halves


def _record(recorder: Recorder, outcome: Outcome) -> None:
    recorder.add("cycles", outcome.cycles, "cycle")
    recorder.add("formula_cycles", outcome.formula, "cycle", "model")
    for cause, waited in outcome.waits.items():
        recorder.add("waiting", waited, "cycle", cause=cause)
    for event, count in vars(outcome.events).items():
        if count:
            recorder.add("events", count, event=event)
    if outcome.total is not None:
        recorder.add("total", outcome.total)
    if outcome.equal is not None:
        recorder.add("equal", outcome.equal)


def _show(recorder: Recorder, name: str, outcome: Outcome, json: bool) -> None:
    if json:
        recorder.print_json()
        return
    rows = [[metric_text(one, ("unit", *outcome.labels)), str(one.value)] for one in recorder.records]
    print_table(", ".join(filter(None, [name, str(outcome.labels)])), ["what", "value"], rows)
    if outcome.equal is not None:
        verdict = "every bit is that of" if outcome.equal else "DIFFERS from"
        print(f"{verdict} {outcome.to}")
