"""The second stage: values go to the lanes whose bit is set, zeros to the others; register DD."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .parameters import VALUE_BITS, Parameters


class Expand(wiring.Component):
    """What stands at the inputs is in DD a cycle later."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        width = parameters.W
        operation = {"values": data.ArrayLayout(VALUE_BITS, width), "bits": width, "place": parameters.place}
        super().__init__(
            {
                "squash": In(1),
                "valid": In(1),
                **{name: In(shape) for name, shape in operation.items()},
                "valid_out": Out(1),
                **{f"{name}_out": Out(shape) for name, shape in operation.items()},
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.sync += self.valid_out.eq(self.valid & ~self.squash)
        with m.If(self.valid):
            m.d.sync += [self.bits_out.eq(self.bits), self.place_out.eq(self.place)]
            for lane, before in enumerate(self._sums(m)):
                first = self.values.as_value()[: VALUE_BITS * (lane + 1)]  # the crossbar is a triangle
                value = first.word_select(before, VALUE_BITS)
                m.d.sync += self.values_out[lane].eq(Mux(self.bits[lane], value, 0))
        return m

    def _sums(self, m: Module) -> list[Any]:
        """Bits set below each lane, by a parallel prefix sum: after a step of distance d, each has the sum of 2d."""
        width = self.parameters.W
        sums = [self.bits[lane] for lane in range(width)]
        distance = 1
        while distance < width:
            longer = [sums[n] + sums[n - distance] if n >= distance else sums[n] for n in range(width)]
            named = [Signal(range(n + 2), name=f"sum_{distance}_{n}") for n in range(width)]
            m.d.comb += [signal.eq(value) for signal, value in zip(named, longer, strict=True)]
            sums, distance = named, 2 * distance
        return [0, *sums[:-1]]
