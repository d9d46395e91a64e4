"""Tender's integer multiply-accumulate unit: what `simulate.units.int_mac` models, cycle by cycle.

A pair comes a cycle, with pauses or without, and is held. In the next cycle its product joins the sum, or twice the sum
where `shift` stood beside it: the pair begins another chunk. A sum wraps, modulo 2^sum_bits. `done` is up for a cycle
when a dot product's `total` stands: from the edge after that of its last pair.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.int_mac import BITS, SUM_BITS
from ..checks import check_range


@dataclass(frozen=True)
class IntMacParameters:
    """Two's complement integers of so many bits; a sum holds a product at least."""

    activation_bits: int = BITS
    weight_bits: int = BITS
    sum_bits: int = SUM_BITS

    def __post_init__(self) -> None:
        check_range("activation_bits", self.activation_bits, 2, 16)
        check_range("weight_bits", self.weight_bits, 2, 16)
        check_range("sum_bits", self.sum_bits, self.activation_bits + self.weight_bits, 64)


class IntMac(wiring.Component):
    """One unit."""

    def __init__(self, parameters: IntMacParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "valid": In(1),
                "activation": In(signed(parameters.activation_bits)),
                "weight": In(signed(parameters.weight_bits)),
                "first": In(1),
                "last": In(1),
                "shift": In(1),
                "total": Out(signed(parameters.sum_bits)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        so_far = Signal(signed(self.parameters.sum_bits))
        activation, weight = Signal.like(self.activation), Signal.like(self.weight)
        is_held = Signal()
        first = Signal()
        last = Signal()
        shift = Signal()
        m.d.sync += [is_held.eq(self.valid), self.done.eq(is_held & last)]
        with m.If(self.valid):
            m.d.sync += [activation.eq(self.activation), weight.eq(self.weight)]
            m.d.sync += [first.eq(self.first), last.eq(self.last), shift.eq(self.shift)]
        m.d.comb += so_far.eq(Mux(first, 0, Mux(shift, self.total << 1, self.total)))
        with m.If(is_held):
            m.d.sync += self.total.eq(so_far + activation * weight)
        return m
