"""What Harmonia's units are given while their energy is measured."""

from collections.abc import Iterator
from functools import partial

import torch

from ...formats.bfp import BFP, BFPTensor, encode
from ..units import Unit
from .case import DOTS, MARGIN, TOKENS, Case, Cycle, clocked, halves, packed, rows_of, single
from .converting import convert
from .operands import Operands
from .trace import Trace

Side = tuple[list[int], list[int]]  # what a sub-PE takes of a group


def harmonia_pe(unit: Unit, operands: Operands) -> list[Case]:
    group = unit.parameters.group

    def linear() -> tuple[list[Cycle], int]:
        """M8W4: activations with weights of four bits."""
        cycles: list[Cycle] = []
        for row, neuron in rows_of(operands, 4, group):
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
        Case("m8w4", fours, 4 * group, "product", clocked(unit, linear)),
        Case("m8m4", fours, 4 * group, "product", clocked(unit, partial(attention, 1, 4))),
        Case("m8m8", twos, 2 * group, "product", clocked(unit, partial(attention, 2, 8))),
    ]


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


def harmonia_converter(unit: Unit, operands: Operands) -> list[Case]:
    group = unit.parameters.group
    keys = operands.keys[: 2 * group, : 4 * group].to(torch.float16).numpy()

    def trace(path: str) -> tuple[Trace, int, int]:
        return convert(unit, keys, path), keys.size // group, 0

    name = f"a group of {group} values"
    return [Case(path, name, group, "value", partial(trace, path)) for path in ("channels", "tokens")]


def harmonia_offsets(unit: Unit, operands: Operands) -> list[Case]:
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
    return [Case("keys", name, size, "value", clocked(unit, inputs))]


def harmonia_subtractor(unit: Unit, operands: Operands) -> list[Case]:
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
    return [Case("keys", f"a column of {rows} keys", rows, "value", clocked(unit, inputs))]
