"""FP-FP: what `simulate.units.rivals.FpFp` models, cycle by cycle.

A pair comes a cycle, with pauses or without. In its cycle its weight times `scale` is rounded to FP16, which it must
fit; in the next, the product of the two FP16 numbers joins the FP32 sum, rounded once. `done` is up for a cycle when a
dot product's `total` stands: from the edge after that of its last pair.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.dot import WEIGHT_BITS
from ..checks import check_range
from ..floating import FP16, FP32, MultiplyAdd, Round, unpack


@dataclass(frozen=True)
class FpFpParameters:
    """Weights of `weight_bits`."""

    weight_bits: int = WEIGHT_BITS

    def __post_init__(self) -> None:
        check_range("weight_bits", self.weight_bits, 2, 8)


class ScaleWeight(wiring.Component):
    """weight · scale in FP16."""

    def __init__(self, weight_bits: int) -> None:
        super().__init__({"weight": In(signed(weight_bits)), "scale": In(FP32.width), "half": Out(FP16.width)})

    def elaborate(self, platform: object) -> Module:
        m, scale = Module(), unpack(self.scale, FP32)
        magnitude = Signal(len(self.weight))
        m.submodules.round = round = Round(len(self.weight) + FP32.bits, signed(9), FP16, saturate=False)
        m.d.comb += [
            magnitude.eq(Mux(self.weight < 0, -self.weight, self.weight)),
            round.sign.eq((self.weight < 0) ^ scale.sign),
            round.magnitude.eq(magnitude * scale.significand),
            round.power.eq(scale.power),
            self.half.eq(round.value),
        ]
        return m


class FpFp(wiring.Component):
    """One unit."""

    def __init__(self, parameters: FpFpParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "valid": In(1),
                "activation": In(FP16.width),
                "weight": In(signed(parameters.weight_bits)),
                "scale": In(FP32.width),
                "first": In(1),
                "last": In(1),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.scale_weight = scale_weight = ScaleWeight(self.parameters.weight_bits)
        m.submodules.multiply_add = multiply_add = MultiplyAdd(FP16, FP16)
        activation = Signal(FP16.width)
        half = Signal(FP16.width)
        is_scaled = Signal()
        first = Signal()
        last = Signal()
        m.d.sync += is_scaled.eq(self.valid)
        with m.If(self.valid):
            m.d.sync += [activation.eq(self.activation), half.eq(scale_weight.half)]
            m.d.sync += [first.eq(self.first), last.eq(self.last)]
        with m.If(is_scaled):
            m.d.sync += self.total.eq(multiply_add.value)
        m.d.sync += self.done.eq(is_scaled & last)
        m.d.comb += [
            scale_weight.weight.eq(self.weight),
            scale_weight.scale.eq(self.scale),
            multiply_add.a.eq(activation),
            multiply_add.b.eq(half),
            multiply_add.addend.eq(Mux(first, 0, self.total)),
        ]
        return m
