"""What rival units are given while their energy is measured."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ...simulate.units.dot import WEIGHT_BITS
from ..units import Unit
from .case import DOTS, MARGIN, Case, Cycle, clocked, halves, packed, rows_of, single
from .operands import Neuron, Operands

GROUP = 64  # of weights of the units that take one pair after another
HEAD = 64  # channels of a query and a key
Dot = Sequence[Cycle]  # of its pairs, but for marks of the first and the last


def _pairs(operands: Operands, bits: int) -> Iterator[tuple[int, int, int, bool, bool, bool]]:
    """(activation, weight, scale, ends a group, of the first group, of the last group) of all dot products."""
    for row, neuron in rows_of(operands, bits, GROUP):
        last = len(neuron.scales) - 1
        patterns = halves(row)
        for group, (weights, scale) in enumerate(zip(neuron.integers, neuron.scales, strict=True)):
            for place, weight in enumerate(weights):
                marks = (place == GROUP - 1, group == 0, group == last)
                yield patterns[group * GROUP + place], weight, single(scale), *marks


def _groups(neuron: Neuron) -> Iterator[tuple[list[int], float]]:
    return zip(neuron.integers, neuron.scales, strict=True)


def _scaling(scale: int, is_first: bool, is_last: bool) -> int:
    return scale | is_first << 32 | is_last << 33


def _heads(operands: Operands) -> Iterator[tuple[Tensor, Tensor]]:
    """FP16 [channels] of a query and a key, for each head of some tokens."""
    width = min(operands.queries.shape[1], operands.keys.shape[1]) // HEAD * HEAD
    for query, key in zip(operands.queries[:DOTS, :width].half(), operands.keys[:DOTS, :width].half(), strict=True):
        yield from zip(query.split(HEAD), key.split(HEAD), strict=True)


def product_case(unit: Unit, name: str, dots: Callable[[], Iterable[Dot]]) -> Case:
    """Of a unit that takes a pair a cycle."""

    def inputs() -> tuple[list[Cycle], int]:
        cycles: list[Cycle] = []
        for dot in dots():
            last = len(dot) - 1
            cycles += [
                {"valid": 1, **pair, "first": int(place == 0), "last": int(place == last)}
                for place, pair in enumerate(dot)
            ]
        return cycles + [{"valid": 0}] * MARGIN, len(cycles)

    return Case(name, "a product", 1, "product", clocked(unit, inputs))


def fp_fp(unit: Unit, operands: Operands) -> list[Case]:
    bits = unit.parameters.weight_bits

    def linear() -> Iterator[Dot]:
        for row, neuron in rows_of(operands, bits, GROUP):
            weights = [(weight, scale) for group, scale in _groups(neuron) for weight in group]
            yield [
                {"activation": value, "weight": packed([weight], bits), "scale": single(scale)}
                for value, (weight, scale) in zip(halves(row), weights, strict=True)
            ]

    def attention() -> Iterator[Dot]:
        """A key is the scale of weight 1: FP32 holds it, and so does what is rounded to FP16."""
        for query, key in _heads(operands):
            pairs = zip(halves(query), key.tolist(), strict=True)
            yield [{"activation": value, "weight": 1, "scale": single(scale)} for value, scale in pairs]

    return [product_case(unit, "linear", linear), product_case(unit, "attention", attention)]


def fp16_mac(unit: Unit, operands: Operands) -> list[Case]:
    def dot(activations: Tensor, weights: Sequence[int]) -> Dot:
        pairs = zip(halves(activations), weights, strict=True)
        return [{"activation": value, "weight": weight} for value, weight in pairs]

    def linear() -> Iterator[Dot]:
        for row, neuron in rows_of(operands, WEIGHT_BITS, GROUP):
            weights = torch.tensor(neuron.integers) * torch.tensor(neuron.scales)[:, None]
            yield dot(row, halves(weights))

    def groups() -> Iterator[Dot]:
        """Each has a scale of its own, which is not applied here."""
        for row, neuron in rows_of(operands, WEIGHT_BITS, GROUP):
            for activations, weights in zip(row.split(GROUP), neuron.integers, strict=True):
                yield dot(activations, [packed([weight], WEIGHT_BITS) for weight in weights])

    def attention() -> Iterator[Dot]:
        for query, key in _heads(operands):
            yield dot(query, halves(key))

    if unit.parameters.is_integer:
        return [product_case(unit, "linear", groups)]
    return [product_case(unit, "linear", linear), product_case(unit, "attention", attention)]


def fp_int(unit: Unit, operands: Operands) -> list[Case]:
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

    return [Case("linear", "a product", 1, "product", clocked(unit, inputs))]


def figna(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    lanes, group, bits = parameters.lanes, parameters.group, parameters.weight_bits
    rows = rows_of(operands, bits, group)

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

    return [Case("linear", f"a group of {group} products", group, "product", clocked(unit, inputs))]


def ifpu(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    lanes, bits = parameters.lanes, parameters.weight_bits
    rows = rows_of(operands, bits, lanes)

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

    return [Case("linear", f"a group of {lanes} products", lanes, "product", clocked(unit, inputs))]
