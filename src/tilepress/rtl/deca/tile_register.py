"""A tile output register (TOut): vOps write chunks, the core reads rows as soon as they are complete."""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .parameters import LINE_BITS, ROW_WEIGHTS, ROWS, VALUE_BITS, Parameters


class TileRegister(wiring.Component):
    """`start` empties it. `write`: the `values` of an `operation`. `row`: rows in order. `finish`: the last is read.

    A chunk longer than a row goes into as many banks as it has rows: row n is in bank n mod banks.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "write": In(1),
                "operation": In(range(parameters.operations)),
                "values": In(data.ArrayLayout(VALUE_BITS, parameters.W)),
                "row": Out(stream.Signature(LINE_BITS)),
                "finish": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.written = Signal(range(self.parameters.operations + 1))
        self.read = Signal(range(ROWS + 1))
        written, read = self.written, self.read
        complete = (written * self.parameters.W) >> ceil_log2(ROW_WEIGHTS)
        passes = self.row.valid & self.row.ready
        m.d.comb += [
            self.row.valid.eq((read < complete) & ~self.start),
            self.row.payload.eq(self._memory(m, read)),
            self.finish.eq(passes & (read == ROWS - 1)),
        ]
        m.d.sync += [written.eq(written + self.write), read.eq(read + passes)]
        with m.If(self.start | self.finish):
            m.d.sync += [written.eq(0), read.eq(0)]
        return m

    def _memory(self, m: Module, read: Any) -> Any:
        """The row `read`."""
        width = self.parameters.W
        banks, parts = max(width // ROW_WEIGHTS, 1), max(ROW_WEIGHTS // width, 1)
        chunks = Cat(*[self.values] * parts)  # any part of a row
        rows = []
        for bank in range(banks):
            memory = Memory(shape=LINE_BITS, depth=ROWS // banks, init=[])
            m.submodules[f"bank_{bank}"] = memory
            port, out = memory.write_port(granularity=LINE_BITS // parts), memory.read_port(domain="comb")
            m.d.comb += [
                port.addr.eq(self.operation >> ceil_log2(parts)),
                port.data.eq(chunks[LINE_BITS * bank :][:LINE_BITS]),
                port.en.eq(self.write << self.operation[: ceil_log2(parts)]),
                out.addr.eq(read >> ceil_log2(banks)),
            ]
            rows.append(out.data)
        return Cat(rows).word_select(read[: ceil_log2(banks)], LINE_BITS)
