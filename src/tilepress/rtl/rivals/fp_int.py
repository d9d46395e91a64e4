"""FP-INT: what `simulate.units.rivals.FpInt` models, cycle by cycle.

A pair comes a cycle, with pauses or without: an FP16 number times an integer joins the FP32 sum of its group. In the
cycle after a group's last pair its sum times its scale joins the sum of groups. Both round once. `done` is up for a
cycle when a dot product's `total` stands: from the edge after that of its last pair.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.dot import WEIGHT_BITS
from ..checks import check_range
from ..floating import FP16, FP32, Add
from .integer_product import IntegerProduct, integer_product_layout
from .scaled_sum import SCALING, ScaledSum


@dataclass(frozen=True)
class FpIntParameters:
    """Weights of `weight_bits`."""

    weight_bits: int = WEIGHT_BITS

    def __post_init__(self) -> None:
        check_range("weight_bits", self.weight_bits, 2, 8)


class FpInt(wiring.Component):
    """One unit. `scaling` stands beside the pair that `ends_group`."""

    def __init__(self, parameters: FpIntParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "valid": In(1),
                "activation": In(FP16.width),
                "weight": In(signed(parameters.weight_bits)),
                "ends_group": In(1),
                "scaling": In(SCALING),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply = multiply = IntegerProduct(self.parameters.weight_bits)
        m.submodules.add = add = Add(integer_product_layout(self.parameters.weight_bits), FP16.bits)
        m.submodules.scaled_sum = scaled_sum = ScaledSum()
        sum = Signal(FP32.width)
        is_new = Signal(init=1)
        ended = Signal()
        scaling = Signal(SCALING)
        m.d.comb += [
            multiply.activation.eq(self.activation),
            multiply.weight.eq(self.weight),
            add.product.eq(multiply.product),
            add.addend.eq(Mux(is_new, 0, sum)),
        ]
        with m.If(self.valid):
            m.d.sync += [sum.eq(add.value), is_new.eq(self.ends_group), scaling.eq(self.scaling)]
        m.d.sync += ended.eq(self.valid & self.ends_group)
        m.d.comb += [
            scaled_sum.valid.eq(ended),
            scaled_sum.group.eq(sum),
            scaled_sum.scaling.eq(scaling),
            self.total.eq(scaled_sum.total),
            self.done.eq(scaled_sum.done),
        ]
        return m
