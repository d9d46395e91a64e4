"""What stands at a component's ports in each cycle, just before the clock's edge, in Amaranth's simulator."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth import Module, Signal, Value
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator
from numpy.typing import NDArray

from ..yosys import ports_of

Bits = NDArray[np.uint8]


@dataclass(frozen=True)
class Trace:
    """Bits [cycles, width] of each port, the lowest first, by its name in the netlist."""

    inputs: Mapping[str, Bits]
    outputs: Mapping[str, Bits]

    @property
    def cycles(self) -> int:
        return len(next(iter(self.inputs.values())))


class Recorder:
    """A background process for a simulator of `component`."""

    def __init__(self, component: Component) -> None:
        self._ports = ports_of(component)
        self._rows: list[tuple[int, ...]] = []

    async def process(self, context: Any) -> None:
        signals = [signal for signal, _ in self._ports.values()]
        async for _, _, *values in context.tick().sample(*signals):
            self._rows.append(tuple(values))

    def trace(self) -> Trace:
        columns = zip(*self._rows, strict=True)
        inputs, outputs = dict[str, Bits](), dict[str, Bits]()
        for (name, (signal, is_input)), words in zip(self._ports.items(), columns, strict=True):
            (inputs if is_input else outputs)[name] = _bits(words, len(signal))
        return Trace(inputs, outputs)


def record(component: Component, cycles: Iterable[Mapping[str, int]]) -> Trace:
    """Gives a component one set of inputs a cycle; an input that a cycle does not name keeps its value."""

    async def bench(context: Any) -> None:
        for cycle in cycles:
            for name, value in cycle.items():
                context.set(Value.cast(getattr(component, name)), value)
            await context.tick()

    return recorded(component, bench)


def recorded(component: Component, bench: Callable[[Any], Any]) -> Trace:
    """As any test bench drives it. A component without registers gets a clock, too, to count cycles by."""
    m, recorder = Module(), Recorder(component)
    m.submodules.component = component
    m.d.sync += Signal(name="clocked").eq(1)
    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.add_testbench(recorder.process, background=True)
    simulator.run()
    return recorder.trace()


def _bits(words: Iterable[int], width: int) -> Bits:
    """[cycles, width]; negative numbers in two's complement."""
    size = -(-width // 8)
    text = b"".join((word & (1 << width) - 1).to_bytes(size, "little") for word in words)
    return np.unpackbits(np.frombuffer(text, np.uint8).reshape(-1, size), axis=1, count=width, bitorder="little")
