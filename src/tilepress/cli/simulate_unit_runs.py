"""What `simulate unit` runs: each unit on given or random numbers, beside what formats, tiles and kernels give."""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from ..records import Labels
from . import simulate_unit_rivals as rivals
from .simulate_unit_settings import Outcome, Settings, check_span, dot_outcome, neuron, random_halves, row

if TYPE_CHECKING:
    from torch import Tensor

    from ..formats.bfp import BFPTensor
    from ..tiles import PackedMatrix


def _apu(name: str, settings: Settings) -> Outcome:
    from ..formats.bfp import BFP, encode, pack_planes
    from ..simulate.units import anda_apu

    x, mantissa = row(settings, anda_apu.LANES), settings.mantissa or 8
    check_span(x)
    format = BFP(anda_apu.LANES, mantissa)
    weights, product = neuron(len(x), anda_apu.LANES, settings.seed, str(format))
    dot = anda_apu.Apu(mantissa, settings.sums).dot(pack_planes(encode(x, format)), weights)
    formula = anda_apu.cycles(-(-len(x) // anda_apu.LANES), mantissa)
    labels = Labels(mantissa=mantissa, sums=settings.sums)
    return dot_outcome(labels, dot, formula, product(x), settings.sums == "fp32")


def _pe(name: str, settings: Settings) -> Outcome:
    from ..formats.bfp import BFP, encode
    from ..simulate.units import harmonia_pe as pe

    mode = pe.Mode(settings.mode)
    if mode is not pe.Mode.m8w4:
        return _pe_of_activations(name, settings)
    x, format = row(settings, pe.PAIRS), BFP(pe.PAIRS, settings.mantissa or 8)
    check_span(x)
    weights, product = neuron(len(x), pe.PAIRS, settings.seed, str(format))
    pairs = pe.linear_pairs(encode(x, format), weights)
    dot = pe.Pe(settings.sums).dot(pairs)
    formula = pe.cycles([pair.mode for pair in pairs])
    labels = Labels(mode=settings.mode, sums=settings.sums)
    return dot_outcome(labels, dot, formula, product(x), settings.sums == "fp32")


def _pe_of_activations(name: str, settings: Settings) -> Outcome:
    import torch

    from ..formats.bfp import BFP, encode
    from ..simulate.units import harmonia_pe as pe

    rows = settings.data
    if rows is None:
        rows = random_halves(settings, 2, settings.groups * pe.PAIRS)
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
    return dot_outcome(labels, dot, formula, _sum_of_groups(first, second), settings.sums == "fp32", "formats")


def _sum_of_groups(first: "BFPTensor", second: "BFPTensor") -> float:
    """Decoded groups multiplied and summed exactly, and the sums of groups in float32."""
    import torch

    from ..formats.bfp import decode

    total = torch.zeros(())
    products, size = decode(first).double() * decode(second).double(), first.format.group
    for begin in range(0, len(products), size):
        total = total + products[begin : begin + size].sum().to(torch.float32)
    return float(total)


def _compressor(name: str, settings: Settings) -> Outcome:
    import torch

    from ..formats.bfp import encode, pack_planes
    from ..kernels import pack_planes as pack_natively
    from ..simulate.units import anda_compressor as unit

    x, mantissa = settings.data, settings.mantissa or 8
    x = random_halves(settings, settings.groups * unit.GROUP) if x is None else x
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
    x = random_halves(settings, *sides) if x is None else x
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

    x = random_halves(settings, unit.WINDOW, 16 * settings.groups) if settings.data is None else settings.data
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
        weights = random_halves(settings, 16, 32 * given.tiles)
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
    "fp-fp": rivals.rival,
    "fp-int": rivals.rival,
    "figna": rivals.rival,
    "fp16-mac": rivals.fp16_mac,
    "int-mac": rivals.int_mac,
    "m-ant-mac": rivals.m_ant_mac,
    "int8-quantiser": rivals.int8_quantiser,
}
