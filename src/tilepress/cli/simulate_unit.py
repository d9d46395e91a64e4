"""`tilepress simulate unit`: one unit of an accelerator on numbers, beside what formats and kernels give for them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..records import Labels
from .output import Json, Recorder, metric_text, print_table, progress

if TYPE_CHECKING:
    from torch import Tensor

    from ..formats.bfp import BFPTensor
    from ..simulate.units.dot import Dot, Weights
    from ..simulate.units.events import Events
    from ..simulate.units.rounding import Intermediate


class UnitName(StrEnum):
    apu = "anda-apu"
    compressor = "anda-compressor"
    pe = "harmonia-pe"
    converter = "harmonia-converter"
    offsets = "harmonia-offsets"
    fp_fp = "fp-fp"
    fp_int = "fp-int"
    figna = "figna"


class ModeName(StrEnum):
    m8w4 = "m8w4"
    m8m4 = "m8m4"
    m8m8 = "m8m8"


class PathName(StrEnum):
    channels = "channels"
    tokens = "tokens"


class SumName(StrEnum):
    fp32 = "fp32"
    fp16 = "fp16"


@dataclass(frozen=True)
class Settings:
    """As typed; `data` are the FP16 values given, or None for random ones."""

    mantissa: int | None
    groups: int
    mode: str
    path: str
    sums: "Intermediate"
    top: int
    seed: int
    data: "Tensor | None"


@dataclass(frozen=True)
class Outcome:
    """`labels`: what sets the unit apart from another of its name. `equal` is None where there is nothing that would
    have to be so; `to` says what it was compared with."""

    labels: Labels
    cycles: int
    formula: int
    events: "Events"
    equal: bool | None
    to: str
    total: float | None = None


# Which units an option is for; options that are not here are for all.
_OWN: dict[str, tuple[UnitName, ...]] = {
    "mantissa": (UnitName.apu, UnitName.compressor, UnitName.pe, UnitName.converter, UnitName.figna),
    "mode": (UnitName.pe,),
    "path": (UnitName.converter,),
    "sums": (UnitName.apu, UnitName.pe),
    "top": (UnitName.offsets,),
}


def _check_options(context: typer.Context, name: UnitName) -> None:
    for option, units in _OWN.items():
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE" and name not in units:
            raise ValueError(f"{name.value} has no --{option}: that is for {', '.join(one.value for one in units)}")


def unit(
    context: typer.Context,
    name: Annotated[UnitName, typer.Argument(help="The unit.", show_default=False)],
    mantissa: Annotated[
        int | None,
        typer.Option(min=1, help="Bits of magnitude: 8 if not given, FIGNA's 14; fp-fp and fp-int have none."),
    ] = None,
    groups: Annotated[int, typer.Option(min=1, help="Groups of random values, if no data are given.")] = 16,
    mode: Annotated[ModeName, typer.Option(help="Of Harmonia's element.")] = ModeName.m8w4,
    path: Annotated[PathName, typer.Option(help="What Harmonia's converter groups.")] = PathName.channels,
    sums: Annotated[
        SumName, typer.Option(help="What anda-apu and harmonia-pe make of a group's sum; the papers have fp16.")
    ] = SumName.fp32,
    top: Annotated[int, typer.Option(min=0, help="Channels of keys that have an offset.")] = 4,
    data: Annotated[Path | None, typer.Option(help="Floats to take instead of random ones: a .npy file.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random values and weights.")] = 0,
    json: Json = False,
) -> None:
    """Step one unit through its cycles, and compare every bit with formats and kernels.

    Data are one row for units that multiply (for Harmonia's with m8m4 or m8m8 also two), an array of any shape for
    Anda's compressor, tokens by channels for Harmonia's converter and, at most 32 tokens, for its offsets. Weights are
    random ones of four bits. The exit code is 1 if a bit differs.

    Example: tilepress simulate unit anda-apu --mantissa 5 --groups 32
    """
    _check_options(context, name)
    settings = Settings(mantissa, groups, mode.value, path.value, sums.value, top, seed, _read(data))
    with progress(json) as bar:
        bar.add_task("stepping", total=None)
        outcome = _UNITS[name](name.value, settings)
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


def _random(settings: Settings, *shape: int) -> "Tensor":
    """FP16 values over many magnitudes."""
    import torch

    generator = torch.Generator().manual_seed(settings.seed)
    powers = torch.randint(-12, 6, shape, generator=generator).to(torch.float32)
    return (torch.randn(shape, generator=generator) * torch.exp2(powers)).to(torch.float16)


def _row(settings: Settings, group: int) -> "Tensor":
    if settings.data is not None and settings.data.ndim != 1:
        raise ValueError(f"the unit takes one row of data, [inputs], not {list(settings.data.shape)}")
    return _random(settings, settings.groups * group) if settings.data is None else settings.data


def _neuron(inputs: int, group: int, seed: int, activations: str) -> "tuple[Weights, Callable[[Tensor], float]]":
    """Random weights, and the kernel's product of them with activations in that format."""
    import torch

    from .. import formats, kernels
    from ..simulate.units.dot import Weights
    from ..tiles import pack, unpack_codes

    values = torch.randn(1, inputs, generator=torch.Generator().manual_seed(seed))
    matrix = pack(values, f"int4:g{group}")
    quantized, _ = unpack_codes(matrix)
    assert quantized.scales is not None
    integers = formats.decode(quantized.codes, matrix.format.element).to(torch.int64)
    weights = Weights(integers[0], quantized.scales[0].to(torch.float32), group)
    return weights, lambda x: float(kernels.linear(x.to(torch.float32)[None], matrix, activations=activations))


def _span(x: "Tensor") -> None:
    from ..kernels.reference import SPAN

    if len(x) > SPAN:
        raise ValueError(
            f"rows have at most {SPAN} inputs, which kernels sum at a time, not {len(x)}: take fewer groups"
        )


def _apu(name: str, settings: Settings) -> Outcome:
    from ..formats.bfp import BFP, encode, pack_planes
    from ..simulate.units import anda_apu

    x, mantissa = _row(settings, anda_apu.LANES), settings.mantissa or 8
    _span(x)
    format = BFP(anda_apu.LANES, mantissa)
    weights, product = _neuron(len(x), anda_apu.LANES, settings.seed, str(format))
    dot = anda_apu.Apu(mantissa, settings.sums).dot(pack_planes(encode(x, format)), weights)
    formula = anda_apu.cycles(-(-len(x) // anda_apu.LANES), mantissa)
    labels = Labels(mantissa=mantissa, sums=settings.sums)
    return _dot(labels, dot, formula, product(x), settings.sums == "fp32")


def _pe(name: str, settings: Settings) -> Outcome:
    from ..formats.bfp import BFP, encode
    from ..simulate.units import harmonia_pe as pe

    mode = pe.Mode(settings.mode)
    if mode is not pe.Mode.m8w4:
        return _pe_of_activations(name, settings)
    x, format = _row(settings, pe.PAIRS), BFP(pe.PAIRS, settings.mantissa or 8)
    _span(x)
    weights, product = _neuron(len(x), pe.PAIRS, settings.seed, str(format))
    pairs = pe.linear_pairs(encode(x, format), weights)
    dot = pe.Pe(settings.sums).dot(pairs)
    formula = pe.cycles([pair.mode for pair in pairs])
    labels = Labels(mode=settings.mode, sums=settings.sums)
    return _dot(labels, dot, formula, product(x), settings.sums == "fp32")


def _pe_of_activations(name: str, settings: Settings) -> Outcome:
    import torch

    from ..formats.bfp import BFP, encode
    from ..simulate.units import harmonia_pe as pe

    rows = settings.data
    if rows is None:
        rows = _random(settings, 2, settings.groups * pe.PAIRS)
    elif rows.ndim == 1:
        rows = torch.stack([rows, rows])
    if rows.ndim != 2 or len(rows) != 2:
        raise ValueError(f"the unit takes one row of data or two, [2, inputs], not {list(rows.shape)}")
    mantissa = 8 if settings.mode == "m8m8" else 4
    first, second = encode(rows[0], BFP(pe.PAIRS, settings.mantissa or 8)), encode(rows[1], BFP(pe.PAIRS, mantissa))
    pairs = pe.attention_pairs(first, second)
    dot = pe.Pe(settings.sums).dot(pairs)
    formula = pe.cycles([pair.mode for pair in pairs])
    labels = Labels(mode=settings.mode, sums=settings.sums)
    return _dot(labels, dot, formula, _sum_of_groups(first, second), settings.sums == "fp32", "formats")


def _sum_of_groups(first: "BFPTensor", second: "BFPTensor") -> float:
    """Decoded groups multiplied and summed exactly, and the sums of groups in float32."""
    import torch

    from ..formats.bfp import decode

    total = torch.zeros(())
    products, size = decode(first).double() * decode(second).double(), first.format.group
    for begin in range(0, len(products), size):
        total = total + products[begin : begin + size].sum().to(torch.float32)
    return float(total)


def _rival(name: str, settings: Settings) -> Outcome:
    from ..simulate.units import rivals

    x, mantissa = _row(settings, 64), settings.mantissa or rivals.FIGNA_MANTISSA
    _span(x)
    weights, product = _neuron(len(x), 64, settings.seed, f"bfp:g64:m{mantissa}")
    kind = rivals.Rival(name)
    if kind is rivals.Rival.figna:
        dot = rivals.Figna(mantissa).dot(x, weights)
        return _dot(Labels(mantissa=mantissa), dot, rivals.cycles(kind, len(x)), product(x), True)
    dot = (rivals.FpFp() if kind is rivals.Rival.fp_fp else rivals.FpInt()).dot(x, weights)
    return _dot(Labels(), dot, rivals.cycles(kind, len(x)), 0.0, False)


def _dot(labels: Labels, dot: "Dot", formula: int, expected: float, exact: bool, to: str = "kernels") -> Outcome:
    equal = dot.total == expected if exact else None
    return Outcome(labels, dot.cycles, formula, dot.events, equal, to if exact else "", dot.total)


def _compressor(name: str, settings: Settings) -> Outcome:
    import torch

    from ..formats.bfp import encode, pack_planes
    from ..kernels import pack_planes as pack_natively
    from ..simulate.units import anda_compressor as unit

    x, mantissa = settings.data, settings.mantissa or 8
    x = _random(settings, settings.groups * unit.GROUP) if x is None else x
    compressed = unit.Compressor(mantissa).compress(x)
    format, planes = compressed.planes.format, compressed.planes.planes
    expected, native = pack_planes(encode(x, format)), pack_natively(x, format)
    equal = torch.equal(planes, expected.planes) and torch.equal(compressed.planes.exponent, expected.exponent)
    equal &= torch.equal(planes.reshape(native.planes.shape), native.planes)
    formula = unit.cycles(expected.exponent.numel(), mantissa)
    labels = Labels(mantissa=mantissa)
    return Outcome(labels, compressed.cycles, formula, compressed.events, equal, "formats, kernels")


def _converter(name: str, settings: Settings) -> Outcome:
    import torch

    from ..formats.bfp import encode
    from ..simulate.units import harmonia_converter as unit

    path, x = unit.Path(settings.path), settings.data
    sides = (8, 32 * settings.groups) if path is unit.Path.channels else (32 * settings.groups, 16)
    x = _random(settings, *sides) if x is None else x
    converted = unit.Converter(settings.mantissa or 8).convert(x, path)
    ours, theirs = converted.values, encode(x, converted.values.format, converted.values.axis)
    parts = [(ours.sign, theirs.sign), (ours.magnitude, theirs.magnitude), (ours.exponent, theirs.exponent)]
    equal = all(torch.equal(mine, other) for mine, other in parts)
    formula = unit.cycles(x.shape[0], x.shape[1], path)
    labels = Labels(path=settings.path, mantissa=ours.format.mantissa)
    return Outcome(labels, converted.cycles, formula, converted.events, equal, "formats")


def _offsets(name: str, settings: Settings) -> Outcome:
    import torch

    from ..kernels.attention_reference import key_offsets
    from ..simulate.units import harmonia_offsets as unit

    x = _random(settings, unit.WINDOW, 16 * settings.groups) if settings.data is None else settings.data
    offsets = unit.OffsetGenerator(settings.top).generate(x)
    equal = torch.equal(offsets.values, key_offsets(x, settings.top))
    formula = unit.cycles(x.shape[0], x.shape[1])
    return Outcome(Labels(top=settings.top), offsets.cycles, formula, offsets.events, equal, "kernels")


_UNITS: dict[UnitName, Callable[[str, Settings], Outcome]] = {
    UnitName.apu: _apu,
    UnitName.compressor: _compressor,
    UnitName.pe: _pe,
    UnitName.converter: _converter,
    UnitName.offsets: _offsets,
    UnitName.fp_fp: _rival,
    UnitName.fp_int: _rival,
    UnitName.figna: _rival,
}


def _record(recorder: Recorder, outcome: Outcome) -> None:
    recorder.add("cycles", outcome.cycles, "cycle")
    recorder.add("formula_cycles", outcome.formula, "cycle", "model")
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
