"""M-ANT's multiply-accumulate unit: what `simulate.units.m_ant_mac` models, cycle by cycle.

A pair comes a cycle, with pauses or without, and is held. In the next cycle the activation, with the weight's sign,
joins one sum times the weight's index, and another one shifted by it. `first` and `last` stand beside a group's pairs,
`coefficient` beside its last. In the cycle after, coefficient · first sum + second sum becomes `total`; that multiplier
has zeros at its inputs until then. `done` is up when it stands: from the second edge after that of the last pair.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.m_ant_mac import ACTIVATION_BITS, COEFFICIENT_BITS, GROUP, INDEX_BITS, SumBits
from ..checks import check_range

WEIGHT = data.StructLayout({"index": INDEX_BITS, "sign": 1})


@dataclass(frozen=True)
class MAntMacParameters:
    """Groups of at most `group` pairs."""

    activation_bits: int = ACTIVATION_BITS
    coefficient_bits: int = COEFFICIENT_BITS
    group: int = GROUP

    def __post_init__(self) -> None:
        check_range("activation_bits", self.activation_bits, 2, 16)
        check_range("coefficient_bits", self.coefficient_bits, 1, 16)
        check_range("group", self.group, 2, 1024)

    @property
    def bits(self) -> SumBits:
        return SumBits(self.activation_bits, self.coefficient_bits, self.group)


class MAntMac(wiring.Component):
    """One unit."""

    def __init__(self, parameters: MAntMacParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "valid": In(1),
                "activation": In(signed(parameters.activation_bits)),
                "weight": In(WEIGHT),
                "first": In(1),
                "last": In(1),
                "coefficient": In(parameters.coefficient_bits),
                "total": Out(signed(parameters.bits.joined)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        is_held, last, coefficient = Signal(), Signal(), Signal.like(self.coefficient)
        m.d.sync += is_held.eq(self.valid)
        with m.If(self.valid):
            m.d.sync += last.eq(self.last)
        with m.If(self.valid & self.last):
            m.d.sync += coefficient.eq(self.coefficient)
        self._join(m, is_held & last, coefficient, *self._sums(m, is_held))
        return m

    def _sums(self, m: Module, is_held: Value) -> tuple[Value, Value]:
        """Registers of both, in which a held pair is from the next edge on."""
        bits = self.parameters.bits
        activation, weight, first = Signal.like(self.activation), Signal(WEIGHT), Signal()
        with m.If(self.valid):
            m.d.sync += [activation.eq(self.activation), weight.eq(self.weight), first.eq(self.first)]
        value = Signal(signed(self.parameters.activation_bits + 1))
        m.d.comb += value.eq(Mux(weight.sign, -activation, activation))
        multiplied, shifted = Signal(signed(bits.multiplied)), Signal(signed(bits.shifted))
        with m.If(is_held):
            m.d.sync += multiplied.eq(Mux(first, 0, multiplied) + value * weight.index)
            m.d.sync += shifted.eq(Mux(first, 0, shifted) + (value << weight.index))
        return multiplied, shifted

    def _join(self, m: Module, is_summed: Value, coefficient: Value, multiplied: Value, shifted: Value) -> None:
        is_whole, factor = Signal(), Signal.like(self.coefficient)
        m.d.sync += [is_whole.eq(is_summed), self.done.eq(is_whole)]
        with m.If(is_summed):
            m.d.sync += factor.eq(coefficient)
        left, right = (Mux(is_whole, value, 0) for value in (multiplied, shifted))
        with m.If(is_whole):
            m.d.sync += self.total.eq(left * factor + right)
