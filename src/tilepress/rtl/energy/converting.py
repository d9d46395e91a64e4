"""Harmonia's converter with its temporary memory, over one matrix."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from amaranth import Value
from numpy.typing import NDArray

from ..harmonia.converter import ConverterParameters, Path
from ..units import Unit
from .trace import Trace, recorded

PATHS = {"channels": Path.CHANNELS, "tokens": Path.TOKENS}
MANTISSA = 8


def convert(unit: Unit, keys: NDArray[np.float16], path: str) -> Trace:
    """FP16 [tokens, channels], a multiple of a block's sides, along one of PATHS."""
    component, parameters = unit.component(), unit.parameters
    mantissa = min(MANTISSA, parameters.mantissa)
    passes = parameters.passes if path == "tokens" else 0
    setting = parameters.setting.const({"path": PATHS[path], "passes": passes, "mantissa": mantissa})
    steps = list(_steps(parameters, keys.view(np.uint16), path))

    async def bench(context: Any) -> None:
        memory: dict[int, int] = {}
        stored, values = Value.cast(component.stored), Value.cast(component.values)
        context.set(Value.cast(component.setting), setting.as_bits())
        left, coming = len(steps), list(reversed(steps))
        while left:
            context.set(component.valid, bool(coming))
            context.set(values, coming[-1] if coming else 0)
            context.set(stored, memory.get(context.get(component.read_address), 0))
            if coming and context.get(component.ready):
                memory[context.get(component.write_address)] = coming.pop()
            await context.tick()
            left -= context.get(component.converted_valid)

    return recorded(component, bench)


def _steps(parameters: ConverterParameters, keys: NDArray[np.uint16], path: str) -> Iterator[int]:
    """The eight values of each step, as `rtl.harmonia.converter` orders them."""
    rows, group, columns = parameters.rows, parameters.group, parameters.columns
    height, width = (rows, group) if path == "channels" else (group, columns)
    for top in range(0, keys.shape[0] - height + 1, height):
        for left in range(0, keys.shape[1] - width + 1, width):
            for first in range(top, top + height, rows):
                for column in range(left, left + width):
                    values = keys[first : first + rows, column].tolist()
                    yield sum(value << 16 * place for place, value in enumerate(values))
