"""An FP16 number times an integer, exactly: FP-INT's and that of FP16 × INT4."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..floating import FP16, unpack


def integer_product_layout(weight_bits: int) -> data.StructLayout:
    return data.StructLayout({"sign": 1, "magnitude": FP16.bits + weight_bits, "power": signed(6)})


class IntegerProduct(wiring.Component):
    """activation · weight. Weights are multiplied as magnitudes, which have as many bits: that of the least has."""

    def __init__(self, weight_bits: int) -> None:
        super().__init__(
            {
                "activation": In(FP16.width),
                "weight": In(signed(weight_bits)),
                "product": Out(integer_product_layout(weight_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        activation = unpack(self.activation, FP16)
        magnitude = Signal(len(self.weight))
        m.d.comb += [
            magnitude.eq(Mux(self.weight < 0, -self.weight, self.weight)),
            self.product.sign.eq(activation.sign ^ (self.weight < 0)),
            self.product.magnitude.eq(activation.significand * magnitude),
            self.product.power.eq(activation.power),
        ]
        return m
