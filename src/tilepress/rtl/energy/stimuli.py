"""What each unit is given while its energy is measured, and what an operation of it is.

Operands follow each other as in a layer: groups of one dot product after another, without pauses.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...formats.bfp import BFP, BFPTensor, encode, pack_planes
from ...tiles import PackedMatrix, pack
from ..deca.testbench import Job, run
from ..units import Unit
from .converting import convert
from .operands import Neuron, Operands, neurons
from .trace import Recorder, Trace, record

Cycle = dict[str, int]
DOTS = 3  # dot products of a case
TOKENS = 24  # of attention, whose dot products are short
DENSITIES = (1.0, 0.5, 0.2, 0.05)  # of DECA's tiles
MARGIN = 4  # cycles after the last input, in which sums are finished


@dataclass(frozen=True)
class Case:
    """`trace` makes the stimulus: what stands at the ports, how many operations that is, and the cycle from which on
    it counts. An operation has `items`, values say."""

    name: str
    operation: str
    items: int
    item: str
    trace: Callable[[], tuple[Trace, int, int]]


def cases(unit: Unit, operands: Operands) -> list[Case]:
    return _CASES[unit.name](unit, operands)


def _clocked(unit: Unit, make: Callable[[], tuple[list[Cycle], int]]) -> Callable[[], tuple[Trace, int, int]]:
    def trace() -> tuple[Trace, int, int]:
        inputs, operations = make()
        return record(unit.component(), inputs), operations, 0

    return trace


def packed(values: Sequence[int], bits: int) -> int:
    """Integers in fields of `bits`, the first lowest; negative ones in two's complement."""
    return sum((int(value) & (1 << bits) - 1) << bits * place for place, value in enumerate(values))


def halves(values: Tensor) -> list[int]:
    """Patterns of FP16."""
    return [int(bits) for bits in values.to(torch.float16).numpy().view(np.uint16).ravel()]


def single(value: float) -> int:
    """The pattern of FP32."""
    return int(np.float32(value).view(np.uint32))


def _rows(operands: Operands, bits: int, group: int) -> list[tuple[Tensor, Neuron]]:
    """An FP16 row of activations and a neuron for each dot product."""
    rows = operands.activations[:DOTS].to(torch.float16)
    return list(zip(rows, neurons(operands.weights[:DOTS], bits, group), strict=True))


def _anda_apu(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    rows = _rows(operands, parameters.weight_bits, parameters.lanes)

    def inputs(mantissa: int) -> tuple[list[Cycle], int]:
        """Each group's weights are loaded beside the last word of the group before."""
        cycles: list[Cycle] = [{"valid": 0}]
        for row, neuron in rows:
            planes = pack_planes(encode(row, BFP(parameters.lanes, mantissa)))
            last = len(neuron.scales) - 1
            for group, scale in enumerate(neuron.scales):
                weights = packed(neuron.integers[group], parameters.weight_bits)
                cycles[-1] |= {"load": 1, "weights": weights, "scale": single(scale)}
                marks = {"planes": mantissa, "first": int(group == 0), "last": int(group == last)}
                words = [packed(word, 8) for word in planes.planes[group].tolist()]
                signs = {"exponent": int(planes.exponent[group]), **marks}
                cycles.append({"valid": 1, "load": 0, "word": words[0], **signs})
                cycles += [{"load": 0, "word": word} for word in words[1:]]
        return cycles + [{"valid": 0, "load": 0}] * MARGIN, sum(len(neuron.scales) for _, neuron in rows)

    operation = f"a group of {parameters.lanes} products"
    return [
        Case(f"m={bits}", operation, parameters.lanes, "product", _clocked(unit, partial(inputs, bits)))
        for bits in range(1, parameters.mantissa + 1)
    ]


def _anda_compressor(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    count = parameters.lanes * parameters.group
    values = operands.activations.flatten()[: operands.activations.numel() // count * count].reshape(-1, count)
    rounds = values[: max(1, 16 // parameters.lanes)]

    def inputs(mantissa: int) -> tuple[list[Cycle], int]:
        cycles: list[Cycle] = []
        for values in rounds:
            cycles.append({"planes": mantissa, "valid": 1, "values": packed(halves(values), 16)})
            cycles += [{"valid": 0}] * mantissa
        return cycles, len(rounds) * parameters.lanes

    operation = f"a group of {parameters.group} values"
    return [
        Case(f"m={bits}", operation, parameters.group, "value", _clocked(unit, partial(inputs, bits)))
        for bits in range(1, parameters.mantissa + 1)
    ]


GROUP = 64  # of weights of the units that take one pair after another


def _pairs(operands: Operands, bits: int) -> Iterator[tuple[int, int, int, bool, bool, bool]]:
    """(activation, weight, scale, ends a group, of the first group, of the last group) of all dot products."""
    for row, neuron in _rows(operands, bits, GROUP):
        last = len(neuron.scales) - 1
        patterns = halves(row)
        for group, (weights, scale) in enumerate(zip(neuron.integers, neuron.scales, strict=True)):
            for place, weight in enumerate(weights):
                marks = (place == GROUP - 1, group == 0, group == last)
                yield patterns[group * GROUP + place], weight, single(scale), *marks


def _scaling(scale: int, is_first: bool, is_last: bool) -> int:
    return scale | is_first << 32 | is_last << 33


def _fp_fp(unit: Unit, operands: Operands) -> list[Case]:
    def inputs() -> tuple[list[Cycle], int]:
        bits = unit.parameters.weight_bits
        cycles: list[Cycle] = []
        is_new = True
        for activation, weight, scale, is_end, _, is_last in _pairs(operands, bits):
            marks = {"first": int(is_new), "last": int(is_end and is_last)}
            cycles.append({"valid": 1, "activation": activation, "weight": packed([weight], bits), "scale": scale})
            cycles[-1] |= marks
            is_new = is_end and is_last
        return cycles + [{"valid": 0}] * MARGIN, len(cycles)

    return [Case("linear", "a product", 1, "product", _clocked(unit, inputs))]


def _fp_int(unit: Unit, operands: Operands) -> list[Case]:
    def inputs() -> tuple[list[Cycle], int]:
        bits = unit.parameters.weight_bits
        cycles: list[Cycle] = [
            {
                "valid": 1,
                "activation": activation,
                "weight": packed([weight], bits),
                "ends_group": int(is_end),
                "scaling": _scaling(scale, *marks),
            }
            for activation, weight, scale, is_end, *marks in _pairs(operands, bits)
        ]
        return cycles + [{"valid": 0}] * MARGIN, len(cycles)

    return [Case("linear", "a product", 1, "product", _clocked(unit, inputs))]


def _figna(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    lanes, group, bits = parameters.lanes, parameters.group, parameters.weight_bits
    rows = _rows(operands, bits, group)

    def now() -> Iterator[Cycle]:
        """Lanes that the end of a group leaves over take zeros."""
        for row, neuron in rows:
            patterns, last = halves(row), len(neuron.scales) - 1
            for number, (weights, scale) in enumerate(zip(neuron.integers, neuron.scales, strict=True)):
                activations = patterns[number * group : (number + 1) * group]
                for first in range(0, group, lanes):
                    yield {
                        "valid": 1,
                        "activations": packed(activations[first : first + lanes], 16),
                        "weights": packed(weights[first : first + lanes], bits),
                        "ends_group": int(first + lanes >= group),
                        "scaling": _scaling(single(scale), number == 0, number == last),
                    }

    def inputs() -> tuple[list[Cycle], int]:
        """A group's activations come while the group before is multiplied."""
        cycles, steps = list(now()), -(-group // lanes)
        idle = {"valid": 0, "coming_valid": 0}
        after = [
            {"coming_valid": 1, "coming": cycle["activations"], "coming_ends_group": cycle["ends_group"]}
            for cycle in cycles
        ]
        first = [idle | one for one in after[:steps]]
        rest = [
            {"coming_valid": 0} | cycle | one
            for cycle, one in zip(cycles, [*after[steps:], *[{}] * steps], strict=True)
        ]
        return first + rest + [idle] * MARGIN, len(cycles) // steps

    return [Case("linear", f"a group of {group} products", group, "product", _clocked(unit, inputs))]


def _ifpu(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    lanes, bits = parameters.lanes, parameters.weight_bits
    rows = _rows(operands, bits, lanes)

    def inputs() -> tuple[list[Cycle], int]:
        """Each group is loaded beside the last word of the group before."""
        cycles: list[Cycle] = [{"valid": 0}]
        for row, neuron in rows:
            patterns, last = halves(row), len(neuron.scales) - 1
            for group, (weights, scale) in enumerate(zip(neuron.integers, neuron.scales, strict=True)):
                of_group = patterns[group * lanes : (group + 1) * lanes]
                cycles[-1] |= {"load": 1, "activations": packed(of_group, 16)}
                marks = {"scale": single(scale), "first": int(group == 0), "last": int(group == last)}
                for place in reversed(range(bits)):
                    word = packed([weight >> place for weight in weights], 1)
                    cycles.append({"valid": 1, "load": 0, "word": word, **marks})
        return cycles + [{"valid": 0, "load": 0}] * MARGIN, sum(len(neuron.scales) for _, neuron in rows)

    return [Case("linear", f"a group of {lanes} products", lanes, "product", _clocked(unit, inputs))]


def _harmonia_pe(unit: Unit, operands: Operands) -> list[Case]:
    group = unit.parameters.group

    def linear() -> tuple[list[Cycle], int]:
        """M8W4: activations with weights of four bits."""
        cycles: list[Cycle] = []
        for row, neuron in _rows(operands, 4, group):
            left = encode(row, BFP(group, 8))
            sides = zip(_magnitudes(left, 8), [[w & 15 for w in weights] for weights in neuron.integers], strict=True)
            of_groups = [
                int(exponent) | single(scale) << 10
                for exponent, scale in zip(left.exponent, neuron.scales, strict=True)
            ]
            cycles += _rounds(unit, 0, [[side] for side in sides], of_groups, 1)
        return cycles + [{"valid": 0}] * (2 * MARGIN), len(cycles) // unit.parameters.round

    def attention(mode: int, mantissa: int) -> tuple[list[Cycle], int]:
        """M8M4 and M8M8: queries with keys of `mantissa` bits."""
        cycles: list[Cycle] = []
        width = min(operands.queries.shape[1], operands.keys.shape[1]) // group * group
        for query, key in zip(operands.queries[:TOKENS, :width], operands.keys[:TOKENS, :width], strict=True):
            left, right = encode(query.half(), BFP(group, 8)), encode(key.half(), BFP(group, mantissa))
            of_groups = [int(a) | int(b) << 5 for a, b in zip(left.exponent, right.exponent, strict=True)]
            sides = [
                [(a, b)] if mantissa <= 4 else _split(a, b)
                for a, b in zip(_magnitudes(left, 8), _magnitudes(right, mantissa), strict=True)
            ]
            cycles += _rounds(unit, mode, sides, of_groups, mantissa)
        return cycles + [{"valid": 0}] * (2 * MARGIN), len(cycles) // unit.parameters.round

    fours, twos = f"a round of 4 · {group} products", f"a round of 2 · {group} products"
    return [
        Case("m8w4", fours, 4 * group, "product", _clocked(unit, linear)),
        Case("m8m4", fours, 4 * group, "product", _clocked(unit, partial(attention, 1, 4))),
        Case("m8m8", twos, 2 * group, "product", _clocked(unit, partial(attention, 2, 8))),
    ]


Side = tuple[list[int], list[int]]  # what a sub-PE takes of a group


def _magnitudes(encoded: BFPTensor, bits: int) -> list[list[int]]:
    """[groups, group]: magnitude, and the sign above it."""
    words = encoded.magnitude | encoded.sign.int() << bits
    return [[int(word) for word in group] for group in words.tolist()]


def _split(left: list[int], right: list[int]) -> list[Side]:
    """The high four bits of eight, and the low; both sub-PEs take `left` of the first."""
    signs = [word >> 8 << 4 for word in right]
    high = [word >> 4 & 15 | sign for word, sign in zip(right, signs, strict=True)]
    low = [word & 15 | sign for word, sign in zip(right, signs, strict=True)]
    return [(left, high), ([0] * len(left), low)]


def _rounds(
    unit: Unit, mode: int, groups: list[list[Side]], of_groups: list[int], right_mantissa: int
) -> Iterator[Cycle]:
    """Cycles of one dot product; what is left after the last whole round is left out."""
    lanes, most = unit.parameters.lanes, 4 // len(groups[0])
    count = len(groups) // most
    for number in range(count):
        part = slice(number * most, (number + 1) * most)
        sides = [side for group in groups[part] for side in group]
        for start in range(0, unit.parameters.group, lanes):
            some = slice(start, start + lanes)
            yield {
                "valid": 1,
                "mode": mode,
                "left": packed([packed(left[some], 9) for left, _ in sides], 9 * lanes),
                "right": packed([packed(right[some], 5) for _, right in sides], 5 * lanes),
                "groups": most,
                "of_groups": packed(of_groups[part], 42),
                "left_mantissa": 8,
                "right_mantissa": right_mantissa,
                "first": int(number == 0),
                "last": int(number == count - 1),
            }


def _harmonia_converter(unit: Unit, operands: Operands) -> list[Case]:
    group = unit.parameters.group
    keys = operands.keys[: 2 * group, : 4 * group].to(torch.float16).numpy()

    def trace(path: str) -> tuple[Trace, int, int]:
        return convert(unit, keys, path), keys.size // group, 0

    name = f"a group of {group} values"
    return [Case(path, name, group, "value", partial(trace, path)) for path in ("channels", "tokens")]


def _harmonia_offsets(unit: Unit, operands: Operands) -> list[Case]:
    rows, columns, channels = unit.parameters.rows, unit.parameters.columns, min(unit.parameters.channels, 64)
    channels -= channels % columns
    keys = operands.keys[: operands.keys.shape[0] // rows * rows]
    heads = [keys[:, at : at + channels] for at in range(0, keys.shape[1] - channels + 1, channels)][:DOTS]

    def inputs() -> tuple[list[Cycle], int]:
        cycles: list[Cycle] = []
        for head in heads:
            for first in range(0, len(head), rows):
                marks = {"valid": 1, "channels": channels, "last_pass": int(first + rows == len(head))}
                passes = head[first : first + rows].T
                cycles += [{"keys": packed(halves(column), 16), **marks} for column in passes]
            cycles += [{"valid": 0}] * channels
        return cycles, len(heads)

    size = keys.shape[0] * channels
    name = f"the keys of a head, {keys.shape[0]} tokens of {channels} channels"
    return [Case("keys", name, size, "value", _clocked(unit, inputs))]


def _harmonia_subtractor(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    channels = min(parameters.channels, operands.keys.shape[1])
    keys = operands.keys[: operands.keys.shape[0] // parameters.rows * parameters.rows, :channels].to(torch.float16)
    largest, chosen = keys.abs().max(0).values.topk(min(parameters.top, channels))
    places = (parameters.channels - 1).bit_length()
    entries = [1 | halves(value)[0] << 1 | int(channel) << 17 for value, channel in zip(largest, chosen, strict=True)]

    def inputs() -> tuple[list[Cycle], int]:
        cycles = [
            {
                "channel": channel,
                "entries": packed(entries, 17 + places),
                "keys": packed(halves(keys[first : first + parameters.rows, channel]), 16),
            }
            for first in range(0, len(keys), parameters.rows)
            for channel in range(channels)
        ]
        return cycles, len(cycles)

    rows = parameters.rows
    return [Case("keys", f"a column of {rows} keys", rows, "value", _clocked(unit, inputs))]


def _deca_pe(unit: Unit, operands: Operands) -> list[Case]:
    weights = operands.weights[:64, :64].to(torch.bfloat16)

    def matrix(format: str, density: float) -> PackedMatrix:
        """The weights of largest magnitude."""
        if density == 1:
            return pack(weights, format, operand_bits=16)
        kept = torch.zeros(weights.numel(), dtype=torch.bool)
        kept[weights.abs().flatten().topk(int(density * weights.numel())).indices] = True
        return pack(weights, format, mask=kept.reshape(weights.shape), operand_bits=16)

    def trace(format: str, density: float) -> tuple[Trace, int, int]:
        """From the first tile on: what fills the tables comes before."""
        recorders: list[Recorder] = []

        def watch(component: Any) -> Any:
            recorders.append(Recorder(component))
            return recorders[0].process

        packed_weights = matrix(format, density)
        run(unit.parameters, [Job(packed_weights, lambda tile, line: 1)], watch)
        seen = recorders[0].trace()
        begin = int(seen.inputs["tile_0_valid"].argmax())
        return seen, packed_weights.layout.blocks * packed_weights.layout.block_tiles, begin

    return [
        Case(f"{format}, {density:.0%} kept", "a tile of 512 weights", 512, "weight", partial(trace, format, density))
        for format in unit.parameters.formats
        for density in DENSITIES
    ]


_CASES: Mapping[str, Callable[[Unit, Operands], list[Case]]] = {
    "deca-pe": _deca_pe,
    "anda-apu": _anda_apu,
    "anda-compressor": _anda_compressor,
    "harmonia-pe": _harmonia_pe,
    "harmonia-converter": _harmonia_converter,
    "harmonia-offsets": _harmonia_offsets,
    "harmonia-subtractor": _harmonia_subtractor,
    "fp-fp": _fp_fp,
    "fp-int": _fp_int,
    "figna": _figna,
    "ifpu": _ifpu,
}
