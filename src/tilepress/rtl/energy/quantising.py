"""INT8 quantisers over one matrix of FP16 values; that with online scales with its memory."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from amaranth import Value
from torch import Tensor

from ..units import Unit
from .case import MARGIN, Case, Cycle, clocked, halves, packed
from .operands import Operands
from .trace import Trace, recorded

BLOCKS = 2  # of rows, that a case has


def int8_quantiser(unit: Unit, operands: Operands) -> list[Case]:
    """The values are activations; offline scales bring each channel's largest to 127."""
    parameters = unit.parameters
    count = operands.activations.shape[0] // parameters.rows
    tokens = operands.activations[: min(count, BLOCKS) * parameters.rows].half()
    if parameters.is_online:
        values, group = _whole_groups(tokens, parameters.group), parameters.group
        make = partial(_online, unit, values)
        return [Case("outputs", f"a group of {group} values", group, "value", make)]
    scales = halves(127 / operands.activations.abs().amax(0).clamp(min=127 / 65504))

    def inputs() -> tuple[list[Cycle], int]:
        cycles: list[Cycle] = [
            {"valid": 1, "values": column, "scale": scales[place % len(scales)]}
            for place, column in enumerate(_columns(tokens, parameters.rows))
        ]
        return cycles + [{"valid": 0}] * MARGIN, len(cycles)

    return [Case("outputs", f"a column of {parameters.rows} values", parameters.rows, "value", clocked(unit, inputs))]


def _whole_groups(tokens: Tensor, group: int) -> Tensor:
    channels = tokens.shape[1] // group * group
    if not channels:
        raise ValueError(f"rows of {tokens.shape[1]} values have no group of {group}: take a smaller group")
    return tokens[:, :channels]


def _columns(values: Tensor, rows: int) -> Iterator[int]:
    """Words of `rows` patterns, a channel after the other."""
    for block in values.split(rows):
        yield from (packed(halves(column), 16) for column in block.T)


def _online(unit: Unit, values: Tensor) -> tuple[Trace, int, int]:
    component = unit.component()
    words = list(_columns(values, unit.parameters.rows))

    async def bench(context: Any) -> None:
        memory: dict[int, int] = {}
        left, coming = len(words), list(reversed(words))
        while left:
            context.set(component.valid, bool(coming))
            context.set(Value.cast(component.stored), memory.get(context.get(component.read_address), 0))
            if coming:
                context.set(Value.cast(component.values), coming[-1])
                memory[context.get(component.write_address)] = coming.pop()
            await context.tick()
            left -= context.get(component.codes_valid)

    return recorded(component, bench), values.numel() // unit.parameters.group, 0
