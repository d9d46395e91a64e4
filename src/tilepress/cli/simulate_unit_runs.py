"""What `simulate unit` runs: each unit on given or random numbers, beside what formats, tiles and kernels give."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..records import Labels

if TYPE_CHECKING:
    from torch import Tensor

    from ..formats.bfp import BFPTensor
    from ..simulate.units.dot import Dot, Weights
    from ..simulate.units.events import Events
    from ..simulate.units.rounding import Intermediate
    from ..tiles import PackedMatrix


@dataclass(frozen=True)
class DecaSettings:
    """As typed, of deca-pe; with `packed`, weights are those of its matrix `layer`, the first if not given."""

    weights: str
    density: float
    engine: str
    tiles: int
    latency: int
    squash_at: tuple[int, ...]
    packed: Path | None
    layer: str | None


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
    deca: DecaSettings


@dataclass(frozen=True)
class Outcome:
    """`labels`: what sets the unit apart from another of its name. `equal` is None where there is nothing that would
    have to be so; `to` says what it was compared with. `waits`: cycles in which a part did nothing, by cause."""

    labels: Labels
    cycles: int
    formula: int
    events: "Events"
    equal: bool | None
    to: str
    total: float | None = None
    waits: Mapping[str, int] = field(default_factory=dict)


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


def _deca_pe(name: str, settings: Settings) -> Outcome:
    import torch

    from ..roofsurface import Deca, parse_decompressor
    from ..simulate.units import deca_pe as unit
    from ..simulate.units.deca_arithmetic import holds_values
    from ..simulate.units.deca_tile import compressed_tiles

    given, engine = settings.deca, parse_decompressor(settings.deca.engine)
    if not isinstance(engine, Deca):
        raise ValueError(f"{given.engine!r} is no engine; take deca or deca:w32:l8, say")
    matrix = _compressed(settings)
    element, tiles = matrix.format.element, list(islice(compressed_tiles(matrix), given.tiles))

    def latency(tile: int, line: int) -> int:
        return given.latency

    result = unit.Pe(element, engine).decompress(tiles, latency, given.squash_at)
    formula = unit.cycles(tiles, engine, latency, given.squash_at)[-1]
    exact = holds_values(element)
    equal = torch.equal(result.values.view(torch.int16), _tiles(matrix)[: len(tiles)].view(torch.int16))
    labels = Labels(format=str(matrix.format), density=round(matrix.density, 4), engine=str(engine), tiles=len(tiles))
    waits = {"bubbles": result.bubbles, "starved": result.starved}
    to = "tiles.unpack, rounded to bf16" if exact else ""
    return Outcome(labels, result.cycles, formula, result.events, equal if exact else None, to, waits=waits)


def _compressed(settings: Settings) -> "PackedMatrix":
    """The weights in tiles of bf16 operands."""
    import torch

    from ..roofsurface.model import check_density
    from ..tiles import load, pack, pack_codes, read_header, unpack_codes

    given, weights = settings.deca, settings.data
    if given.packed is not None:
        names = list(read_header(given.packed))
        chosen = given.layer or names[0]
        if chosen not in names:
            raise ValueError(f"{given.packed} has no matrix {chosen!r}; there are {', '.join(names[:3])} …")
        matrix = load(given.packed, [chosen])[chosen]
        quantized, mask = unpack_codes(matrix)
        return pack_codes(quantized, matrix.format, mask=mask, operand_bits=16)
    check_density(given.density)
    if weights is None:
        weights = _random(settings, 16, 32 * given.tiles)
    if weights.ndim != 2:
        raise ValueError(f"the unit takes weights [neurons, inputs], not {list(weights.shape)}")
    generator = torch.Generator().manual_seed(settings.seed)
    mask = None if given.density == 1 else torch.rand(weights.shape, generator=generator) < given.density
    return pack(weights.to(torch.float32), given.weights, mask=mask, operand_bits=16)


def _tiles(matrix: "PackedMatrix") -> "Tensor":
    """bf16 [tiles, 16, 32] of a whole matrix, zeros past its edge."""
    import torch

    from ..tiles import unpack

    layout = matrix.layout
    padded = torch.zeros(layout.blocks * 16, layout.block_tiles * 32, dtype=torch.bfloat16)
    padded[: matrix.rows, : matrix.cols] = unpack(matrix).to(torch.bfloat16)
    blocks = padded.reshape(layout.blocks, 16, layout.block_tiles, 32).transpose(1, 2)
    return blocks.reshape(-1, 16, 32).contiguous()


RUNS: dict[str, Callable[[str, Settings], Outcome]] = {
    "anda-apu": _apu,
    "anda-compressor": _compressor,
    "deca-pe": _deca_pe,
    "harmonia-pe": _pe,
    "harmonia-converter": _converter,
    "harmonia-offsets": _offsets,
    "fp-fp": _rival,
    "fp-int": _rival,
    "figna": _rival,
}
