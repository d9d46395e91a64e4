"""What integer units of rivals are given while their energy is measured."""

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from ..units import Unit
from .case import DOTS, Case, Cycle
from .integers import chunks, largest_integer, m_ant_group, rounded
from .operands import Operands
from .rival_stimuli import Dot, product_case


def int_mac(unit: Unit, operands: Operands) -> list[Case]:
    parameters = unit.parameters
    of_channels = chunks(operands.activations, parameters.activation_bits)

    def linear() -> Iterator[Dot]:
        for row, neuron in zip(operands.activations[:DOTS], operands.weights[:DOTS], strict=True):
            weight_scale = float(neuron.abs().max()) / largest_integer(parameters.weight_bits)
            weights = rounded(neuron, weight_scale, parameters.weight_bits)
            yield [pair for number in range(len(of_channels.channels)) for pair in chunk(row, weights, number)]

    def chunk(row: Tensor, weights: list[int], number: int) -> list[Cycle]:
        """A chunk that has no channel is a pair of zeros, which shifts the sum."""
        channels, scale = of_channels.channels[number], of_channels.scale / (1 << number)
        values = rounded(row[channels], scale, parameters.activation_bits)
        pairs = list(zip(values, (weights[channel] for channel in channels), strict=True)) or [(0, 0)]
        return [
            {"activation": value, "weight": weight, "shift": int(place == 0 and number > 0)}
            for place, (value, weight) in enumerate(pairs)
        ]

    return [product_case(unit, "linear", linear)]


def m_ant_mac(unit: Unit, operands: Operands) -> list[Case]:
    return [product_case(unit, "linear", partial(_m_ant_groups, unit, operands))]


def m_ant_sums(unit: Unit, operands: Operands) -> list[Case]:
    """The same pairs, without a coefficient."""

    def linear() -> Iterator[Dot]:
        for group in _m_ant_groups(unit, operands):
            yield [{name: pair[name] for name in ("activation", "weight")} for pair in group]

    return [product_case(unit, "linear", linear)]


def _m_ant_groups(unit: Unit, operands: Operands) -> Iterator[Dot]:
    """Each has a scale of its own, of activations and of weights, which is not applied here."""
    parameters = unit.parameters
    for row, neuron in zip(operands.activations[:DOTS], operands.weights[:DOTS], strict=True):
        for x, weights in zip(row.split(parameters.group), neuron.split(parameters.group), strict=True):
            group = m_ant_group(weights)
            scale = float(x.abs().max()) / largest_integer(parameters.activation_bits)
            values = rounded(x, scale, parameters.activation_bits)
            coefficient = group.coefficient & (1 << parameters.coefficient_bits) - 1
            yield [
                {"activation": value, "weight": code, "coefficient": coefficient}
                for value, code in zip(values, group.codes, strict=True)
            ]
