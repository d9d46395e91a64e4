"""What follows the integer sum of a group in Anda's and Harmonia's units: Σ sum · 2^power · scale over groups, in FP32.

Three stages, a cycle each: conversion to floating point, an exact product with the scale, and an addition that rounds
once. A group may come in every cycle.
"""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .floating import FP32, Add, Convert, Float, Multiply, product_layout

POWER = signed(8)
STAGES = 3


def group_layout(sum_bits: int) -> data.StructLayout:
    """A group's sum, the power of two that its 1 stands for, the weights' scale in FP32, and where its dot product
    begins and ends."""
    return data.StructLayout(
        {"sum": signed(sum_bits), "power": POWER, "scale": FP32.width, "first": 1, "last": 1},
    )


class GroupAccumulator(wiring.Component):
    """`done` is up for the one cycle in which `total` is that of a whole dot product."""

    def __init__(self, sum_bits: int, intermediate: Float) -> None:
        super().__init__(
            {
                "group": In(group_layout(sum_bits)),
                "valid": In(1),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )
        self._convert = Convert(sum_bits, POWER, intermediate)

    def elaborate(self, platform: object) -> Module:
        m, group = Module(), self.group
        product_type = product_layout(FP32, FP32)
        m.submodules.convert = convert = self._convert
        m.submodules.multiply = multiply = Multiply(FP32, FP32)
        m.submodules.add = add = Add(product_type, FP32.bits)

        converted = Signal(FP32.width)
        scale = Signal(FP32.width)
        product = Signal(product_type)
        marks = data.StructLayout({"valid": 1, "first": 1, "last": 1})
        in_converted = Signal(marks)
        in_product = Signal(marks)

        m.d.comb += [convert.integer.eq(group.sum), convert.power.eq(group.power)]
        m.d.sync += in_converted.valid.eq(self.valid)
        with m.If(self.valid):
            m.d.sync += [converted.eq(convert.value), scale.eq(group.scale)]
            m.d.sync += [in_converted.first.eq(group.first), in_converted.last.eq(group.last)]

        m.d.comb += [multiply.a.eq(converted), multiply.b.eq(scale)]
        m.d.sync += in_product.eq(in_converted)
        with m.If(in_converted.valid):
            m.d.sync += product.eq(multiply.product)

        m.d.comb += add.product.eq(product)
        with m.If(~in_product.first):
            m.d.comb += add.addend.eq(self.total)
        m.d.sync += self.done.eq(in_product.valid & in_product.last)
        with m.If(in_product.valid):
            m.d.sync += self.total.eq(add.value)
        return m
