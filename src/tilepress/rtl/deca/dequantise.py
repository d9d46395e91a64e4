"""The first stage: a window of codes becomes bf16 values, contiguous in register SD.

A window with more codes than the tables have ports holds the stage longer: the first codes are looked up in the cycle
in which the vOp enters, the rest waits in a register.
"""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .lut_array import LutArray
from .parameters import VALUE_BITS, Control, Parameters


class Dequantise(wiring.Component):
    """`free`: a vOp may `enter`, with its `window`, `count`, `bits` and `place`. `valid`: SD has all `values` of a vOp,
    those of `bits_out` and `place_out`."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        width = parameters.W
        super().__init__(
            {
                "control": In(Control),
                "squash": In(1),
                "write": In(stream.Signature(parameters.write, always_ready=True)),
                "free": Out(1),
                "enter": In(1),
                "window": In(parameters.window_bits),
                "count": In(range(width + 1)),
                "bits": In(width),
                "place": In(parameters.place),
                "valid": Out(1),
                "values": Out(data.ArrayLayout(VALUE_BITS, width)),
                "bits_out": Out(width),
                "place_out": Out(parameters.place),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.last = Signal()  # all codes of the vOp pass in this cycle
        self.busy = busy = Signal()  # with a vOp that entered before
        m.d.comb += self.free.eq(~busy)
        m.d.sync += [
            busy.eq((self.enter | busy) & ~self.last & ~self.squash),
            self.valid.eq((self.enter | busy) & self.last & ~self.squash),
        ]
        with m.If(self.enter):
            m.d.sync += [self.bits_out.eq(self.bits), self.place_out.eq(self.place)]
        self._look_up(m, busy)
        return m

    def _look_up(self, m: Module, busy: Any) -> None:
        tables: Any = self._tables(m, busy) if self.parameters.table_bits else None
        with m.Switch(self.control.code_bits):
            for bits in self.parameters.code_bits:
                with m.Case(bits):
                    if bits == VALUE_BITS:  # bf16 needs no table
                        m.d.comb += self.last.eq(1)
                        m.d.sync += self.values.eq(self.window)
                    else:
                        self._pass(m, busy, tables, self.parameters.lookups(bits))

    def _tables(self, m: Module, busy: Any) -> LutArray:
        """The tables, and before them codes that have not passed, from the first on."""
        m.submodules.tables = tables = LutArray(self.parameters)
        self.codes = Signal(data.ArrayLayout(tables.width, self.parameters.W))
        self.rest = Signal.like(self.codes)
        self.left = Signal.like(self.count)
        self.step = Signal.like(self.count)
        with m.If(busy):
            m.d.comb += self.codes.eq(self.rest)
        with m.Else(), m.Switch(self.control.code_bits):
            for bits in self.parameters.table_bits:
                with m.Case(bits):
                    m.d.comb += [self.codes[n].eq(self.window[bits * n :][:bits]) for n in range(self.parameters.W)]
        m.d.comb += [
            tables.code_bits.eq(self.control.code_bits),
            tables.write.valid.eq(self.write.valid),
            tables.write.payload.eq(self.write.payload),
            tables.codes.eq(self.codes),
        ]
        return tables

    def _pass(self, m: Module, busy: Any, tables: LutArray, lookups: int) -> None:
        """As many codes as `lookups`: values of step k go to the k-th part of SD."""
        width, count, step = self.parameters.W, Mux(busy, self.left, self.count), Mux(busy, self.step, 0)
        m.d.comb += self.last.eq(count <= lookups)
        m.d.sync += [
            self.rest.eq(self.codes.as_value() >> (lookups * tables.width)),
            self.left.eq(count - lookups),
            self.step.eq(step + 1),
        ]
        with m.Switch(step):
            for index, first in enumerate(range(0, width, lookups)):
                part = range(first, min(first + lookups, width))
                with m.Case(index):
                    m.d.sync += [self.values[n].eq(tables.values[n - first]) for n in part]
