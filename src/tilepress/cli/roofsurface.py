"""`tilepress roofsurface`: what bounds compressed weights on a machine, real or not."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .busy import Strict, record_idleness
from .completion import transformers, weight_formats
from .machine_list import show_machines
from .machines import MachineName, find_measured
from .output import Json, Recorder, Threads, print_table
from .report import write_page
from .roofsurface_ranks import decode

if TYPE_CHECKING:
    from ..formats import WeightFormat
    from ..hardware import Machine
    from ..records import Label
    from ..roofsurface import Decompressor, Design, Prediction
    from ..roofsurface.kernels import Kernel

DEFAULT_WEIGHTS = {"kernels": ["int4:g32", "int8:row"], "libxsmm": ["mxfp4", "bf8", "bf16"]}
DEFAULT_DENSITIES = [1.0, 0.5, 0.3, 0.2, 0.1, 0.05]


def roofsurface(
    machine: MachineName = "spr-hbm",
    weights: Annotated[
        list[str] | None, typer.Option(autocompletion=weight_formats, help="A weight format; may be repeated.")
    ] = None,
    density: Annotated[
        list[float] | None, typer.Option(help="Share of weights kept; 1 is dense. May be repeated.")
    ] = None,
    decompressor: Annotated[
        str | None,
        typer.Option(
            help="libxsmm, kernels (ours), ops:N (vector operations a tile), deca:wW:lL or none; the machine's own."
        ),
    ] = None,
    acts: Annotated[
        str, typer.Option(help="Of our kernels: float, bf16, int8 or bfp:gN:mN; auto fits the weights.")
    ] = "auto",
    instead: Annotated[
        str | None, typer.Option(help="Also what another decompressor would give: deca on this machine, say.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows of activations.")] = 1,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=transformers,
            help="Also a decoder's tokens/s, all its matrices alike: a name, a Hugging Face folder or config.json.",
        ),
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, help="Of --model: processes, one on each socket of the machine.")] = 1,
    search: Annotated[bool, typer.Option("--search", help="Find the smallest DECA that binds none of them.")] = False,
    bandwidth: Annotated[list[float] | None, typer.Option(help="In the search: × this bandwidth; repeatable.")] = None,
    cores: Annotated[list[float] | None, typer.Option(help="In the search: × this many cores; repeatable.")] = None,
    frequency: Annotated[list[float] | None, typer.Option(help="In the search: × this clock; repeatable.")] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the surface, the bounding regions and the table to this page."),
    ] = None,
    list_machines: Annotated[
        bool, typer.Option("--list", help="List the machines that come with the package, and their rates.")
    ] = False,
    strict: Strict = False,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Show how fast a machine can multiply compressed weights, and whether memory, vector or matrix units bind it.

    Rates are limits: the slowest domain sets them. TFLOPS count a multiply-add as one. The roofline beside it knows
    only memory and matrix units. --machine here measures bandwidth and frequency and takes counted operations of the
    kernels that would run; --decompressor kernels with another machine, those of its instruction set.

    Example: tilepress roofsurface --machine spr-hbm --weights mxfp4 --weights bf8 --density 0.2 --html surface.html
    """
    if list_machines:
        return show_machines(json)
    if ranks > 1 and model is None:
        raise ValueError("--ranks cuts a decoder: say which with --model")
    measured = find_measured(machine, threads, json, strict)
    target = measured.machine
    name = decompressor or _usual(target)
    if acts != "auto" and "kernels" not in (name, instead):
        raise ValueError(f"--acts are those of our kernels, and {name} is none: add --decompressor kernels")
    kernels = _kernels(name, weights, density)
    predictions = [_predict(target, *kernel, name, acts, batch) for kernel in kernels]
    alternatives = [_predict(target, *kernel, instead, acts, batch) for kernel in kernels] if instead else []
    recorder = Recorder("model", target=target.name)
    if measured.idleness:
        record_idleness(recorder, measured.idleness)
    _record(recorder, predictions, alternatives)
    decoding = None
    if model:
        again = partial(_predict, name=name, activations=acts, batch=batch)
        decoding = decode(target, model, ranks, batch, predictions, again)
        decoding.record(recorder)
    smallest = _search(recorder, target, kernels, (bandwidth, cores, frequency)) if search else []
    write_page(html, f"{target.title}: {name}", recorder.records, with_explorer=False)
    if json:
        recorder.print_json()
    else:
        _print(target, name, batch, predictions, instead, alternatives)
        if decoding:
            decoding.print()
        if search:
            _print_designs(smallest)


def _usual(machine: "Machine") -> str:
    """What decompresses where nothing else is said: our kernels here and where vector units multiply, libxsmm beside
    AMX; nothing where neither was counted."""
    from ..roofsurface.decompressors import LIBXSMM_BITS
    from ..roofsurface.kernels import is_counted_on

    if machine.name == "here":
        return "kernels"
    if machine.vector and machine.matrix and machine.matrix.rows > 1:
        return "libxsmm" if machine.vector.bits == LIBXSMM_BITS else "none"
    return "kernels" if is_counted_on(machine) else "none"


def _kernels(
    name: str, weights: Sequence[str] | None, densities: Sequence[float] | None
) -> "list[tuple[WeightFormat, float]]":
    """What was asked for; what the paper shows, or what our kernels were counted with, if nothing was."""
    from ..formats import parse_weight
    from ..roofsurface.decompressors import LIBXSMM_COUNTS
    from ..roofsurface.model import check_density

    for density in densities or []:
        check_density(density)
    formats = [parse_weight(one) for one in weights or DEFAULT_WEIGHTS.get(name, DEFAULT_WEIGHTS["libxsmm"])]
    chosen = densities or ([1.0] if weights else DEFAULT_DENSITIES)
    pairs = [(format, density) for format in formats for density in chosen]
    if weights or name == "kernels":
        return pairs
    return [(format, density) for format, density in pairs if (format.element.bits, density < 1) in LIBXSMM_COUNTS]


def _predict(
    machine: "Machine", format: "WeightFormat", density: float, name: str, activations: str, batch: int
) -> "Prediction":
    from ..roofsurface import predict

    return predict(machine, format, density, _decompressor(machine, name, format, density, activations, batch), batch)


def _decompressor(
    machine: "Machine", name: str, format: "WeightFormat", density: float, activations: str, batch: int
) -> "Decompressor":
    from ..formats import Integer
    from ..roofsurface import parse_decompressor
    from ..roofsurface.kernels import isa_of, kernel_on

    if name != "kernels":
        return parse_decompressor(name, machine)
    here, auto = machine.name == "here", activations == "auto"
    fitting = "int8" if isinstance(format.element, Integer) else "float" if here else "bf16"
    chosen = fitting if auto else activations
    if here:
        return _kernel(format, density, chosen, batch)
    return kernel_on(isa_of(machine), format, density, chosen, batch)


def _kernel(format: "WeightFormat", density: float, activations: str, batch: int) -> "Kernel":
    """The kernel that would run now, asked with a matrix of the kind."""
    import torch

    from ..kernels import linear_kernel
    from ..roofsurface.kernels import Kernel, floats_as
    from ..tiles import pack
    from .bench import Dtype, torch_dtype

    sample = pack(torch.ones(16, 256), format, sparse=density < 1)
    dtype = torch.bfloat16 if activations == "bf16" else torch_dtype(Dtype.auto)
    taken = "float" if activations == "bf16" else activations
    kernel = Kernel(linear_kernel(sample, batch, dtype, activations=taken), floats_as(taken, dtype))
    if batch > kernel.rows:
        raise ValueError(f"{kernel.name} was counted with {kernel.rows} rows of activations, not {batch}")
    return kernel


def record_kernels(recorder: Recorder, machine: "Machine", densities: Sequence[float] = (1.0, 0.5)) -> None:
    """What bounds our kernels on this machine with one row, of formats whose operations were counted."""
    roofs = Recorder("model", target=machine.name)
    for format, density in _kernels("kernels", None, densities):
        with suppress(ValueError):
            _record(roofs, [_predict(machine, format, density, "kernels", "auto", 1)], [])
    recorder.records.extend(roofs.records)


def _record(recorder: Recorder, predictions: "Sequence[Prediction]", alternatives: "Sequence[Prediction]") -> None:
    for one, other in zip_longest(predictions, alternatives):
        kernel: dict[str, Label] = {"format": str(one.format), "density": one.density}
        if other:
            recorder.add("speedup_instead", other.flops / one.flops, "x", **kernel)
        for domain, demand in one.demands.items():
            recorder.add("demand", demand, "byte" if domain == "memory" else "operation", domain=domain, **kernel)
            recorder.add("limit", one.surface.limits[domain], "tile/s", domain=domain, **kernel)
        recorder.add("bound_by", one.surface.binding, **kernel)
        recorder.add("headroom", one.surface.headroom, "x", **kernel)
        recorder.add("rate", one.flops / 1e12, "TFLOPS", **kernel)
        recorder.add("roofline", one.roofline_flops / 1e12, "TFLOPS", **kernel)
        recorder.add("weights_read", one.bandwidth / 1e9, "GB/s", **kernel)


def _print(
    machine: "Machine",
    name: str,
    batch: int,
    predictions: "Sequence[Prediction]",
    instead: str | None,
    alternatives: "Sequence[Prediction]",
) -> None:
    rows = [
        [
            str(one.format),
            f"{100 * one.density:g} %",
            one.surface.binding,
            one.advice,
            f"{one.demands['memory']:.1f}",
            f"{one.demands['vector']:.1f}" if "vector" in one.demands else "",
            f"{one.flops / 1e12:.3g}",
            f"{one.roofline_flops / 1e12:.3g}",
            f"{one.bandwidth / 1e9:.1f}",
            *([f"{other.flops / one.flops:.2f}"] if other else []),
        ]
        for one, other in zip_longest(predictions, alternatives)
    ]
    figures = ["bytes a tile", "vector operations", "TFLOPS", "roofline", "GB/s of weights"]
    columns = ["weights", "density", "bound by", "to leave it", *figures, *([f"× with {instead}"] if instead else [])]
    title = f"{machine.title}, {name}, {batch} {'row' if batch == 1 else 'rows'}"
    print_table(title, columns, rows, words=4)


def _search(
    recorder: Recorder,
    machine: "Machine",
    kernels: "Sequence[tuple[WeightFormat, float]]",
    factors: Sequence[Sequence[float] | None],
) -> "list[Design]":
    from ..roofsurface import Space, designs

    if any(factor <= 0 for axis in factors for factor in axis or []):
        raise ValueError("bandwidth, cores and frequency are multiplied by numbers above 0")
    bandwidths, cores, frequencies = (axis or [1.0] for axis in factors)
    smallest = designs(machine, kernels, Space(bandwidths=bandwidths, cores=cores, frequencies=frequencies))
    for one in smallest:
        factors_of = {"bandwidth": one.bandwidth, "cores": one.cores, "frequency": one.frequency}
        recorder.add("smallest_deca", _engine(one), **factors_of)
    return smallest


def _print_designs(smallest: "Sequence[Design]") -> None:
    from ..simulate.deca.area import area

    def row(one: "Design") -> list[str]:
        size = f"{sum(area(one.engine).values()):.3f}" if one.engine else ""
        return [_engine(one), f"{one.bandwidth:g}", f"{one.cores:g}", f"{one.frequency:g}", size]

    columns = ["engine", "× bandwidth", "× cores", "× clock", "mm² a core, 7 nm"]
    print_table("The smallest DECA that costs none of them 1 %", columns, map(row, smallest))


def _engine(design: "Design") -> str:
    return str(design.engine or "none of those tried")
