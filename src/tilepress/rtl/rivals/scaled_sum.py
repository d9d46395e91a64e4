"""The sum of groups of FP-INT and FIGNA: a group's sum in FP32 times its scale joins it, rounded once, in a cycle."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..floating import FP32, MultiplyAdd

SCALING = data.StructLayout({"scale": FP32.width, "first": 1, "last": 1})  # first and last of a dot product


class ScaledSum(wiring.Component):
    """`done` is up for the one cycle in which `total` is that of a whole dot product."""

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": In(1),
                "group": In(FP32.width),
                "scaling": In(SCALING),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply_add = multiply_add = MultiplyAdd(FP32, FP32)
        m.d.comb += [
            multiply_add.a.eq(self.group),
            multiply_add.b.eq(self.scaling.scale),
            multiply_add.addend.eq(Mux(self.scaling.first, 0, self.total)),
        ]
        m.d.sync += self.done.eq(self.valid & self.scaling.last)
        with m.If(self.valid):
            m.d.sync += self.total.eq(multiply_add.value)
        return m
