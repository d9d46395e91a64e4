"""An FP16 multiply-accumulate unit: what `simulate.units.fp16_mac` models, cycle by cycle.

A pair comes a cycle, with pauses or without, and is held. In the next cycle the exact product joins the FP16 sum,
rounded once, to nearest with ties to even; a sum past the largest number is infinite and stays so. `done` is up for a
cycle when a dot product's `total` stands: from the edge after that of its last pair.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.fp16_mac import WeightFormat
from ..checks import check_one_of
from ..floating import FP16, Add, Multiply, product_layout
from .integer_product import IntegerProduct, integer_product_layout


@dataclass(frozen=True)
class Fp16MacParameters:
    """Weights are fp16, or int4."""

    weight_format: str = "fp16"

    def __post_init__(self) -> None:
        check_one_of("weight_format", self.weight_format, [format.value for format in WeightFormat])

    @property
    def is_integer(self) -> bool:
        return self.weight_format == WeightFormat.int4

    @property
    def weight_bits(self) -> int:
        return WeightFormat(self.weight_format).bits

    @property
    def product(self) -> data.StructLayout:
        return integer_product_layout(self.weight_bits) if self.is_integer else product_layout(FP16, FP16)


class Fp16Mac(wiring.Component):
    """One unit."""

    def __init__(self, parameters: Fp16MacParameters) -> None:
        self.parameters = parameters
        bits = parameters.weight_bits
        super().__init__(
            {
                "valid": In(1),
                "activation": In(FP16.width),
                "weight": In(signed(bits) if parameters.is_integer else bits),
                "first": In(1),
                "last": In(1),
                "total": Out(FP16.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.add = add = Add(self.parameters.product, FP16.bits, FP16)
        activation, weight = Signal.like(self.activation), Signal.like(self.weight)
        is_held = Signal()
        first = Signal()
        last = Signal()
        m.d.sync += [is_held.eq(self.valid), self.done.eq(is_held & last)]
        with m.If(self.valid):
            m.d.sync += [activation.eq(self.activation), weight.eq(self.weight)]
            m.d.sync += [first.eq(self.first), last.eq(self.last)]
        with m.If(is_held):
            m.d.sync += self.total.eq(add.value)
        m.d.comb += add.product.eq(self._product(m, activation, weight))
        m.d.comb += add.addend.eq(Mux(first, 0, self.total))
        return m

    def _product(self, m: Module, activation: Value, weight: Value) -> data.View:
        if self.parameters.is_integer:
            m.submodules.multiply = integer = IntegerProduct(self.parameters.weight_bits)
            m.d.comb += [integer.activation.eq(activation), integer.weight.eq(weight)]
            return integer.product
        m.submodules.multiply = multiply = Multiply(FP16, FP16)
        m.d.comb += [multiply.a.eq(activation), multiply.b.eq(weight)]
        return multiply.product
