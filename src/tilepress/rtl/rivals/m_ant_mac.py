"""M-ANT's multiply-accumulate unit: what `simulate.units.m_ant_mac` models, cycle by cycle.

A pair comes a cycle, with pauses or without, and is held. In the next cycle the activation, with the weight's sign,
joins one sum times the weight's index, and another one shifted by it. `first` and `last` stand beside a group's pairs,
`coefficient` beside its last. In the cycle after, coefficient · first sum + second sum becomes `total`; that multiplier
has zeros at its inputs until then. `done` is up when it stands: from the second edge after that of the last pair.

`MAntSums` is the unit without that last stage, for arrays whose units share it.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, signed
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


def _pair_ports(parameters: MAntMacParameters) -> dict[str, wiring.Member]:
    return {
        "valid": In(1),
        "activation": In(signed(parameters.activation_bits)),
        "weight": In(WEIGHT),
        "first": In(1),
        "last": In(1),
    }


class MAntSums(wiring.Component):
    """A group's two sums; `done` is up when they stand: from the edge after that of the last pair, for a cycle."""

    def __init__(self, parameters: MAntMacParameters) -> None:
        self.parameters = parameters
        sums = {"multiplied": Out(signed(parameters.bits.multiplied)), "shifted": Out(signed(parameters.bits.shifted))}
        super().__init__({**_pair_ports(parameters), **sums, "done": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        activation = Signal.like(self.activation)
        weight = Signal(WEIGHT)
        is_held = Signal()
        first = Signal()
        last = Signal()
        m.d.sync += [is_held.eq(self.valid), self.done.eq(is_held & last)]
        with m.If(self.valid):
            m.d.sync += [activation.eq(self.activation), weight.eq(self.weight)]
            m.d.sync += [first.eq(self.first), last.eq(self.last)]
        value = Signal(signed(self.parameters.activation_bits + 1))
        m.d.comb += value.eq(Mux(weight.sign, -activation, activation))
        with m.If(is_held):
            m.d.sync += self.multiplied.eq(Mux(first, 0, self.multiplied) + value * weight.index)
            m.d.sync += self.shifted.eq(Mux(first, 0, self.shifted) + (value << weight.index))
        return m


class MAntMac(wiring.Component):
    """One unit, which joins its sums itself."""

    def __init__(self, parameters: MAntMacParameters) -> None:
        self.parameters = parameters
        whole = {"coefficient": In(parameters.coefficient_bits), "total": Out(signed(parameters.bits.joined))}
        super().__init__({**_pair_ports(parameters), **whole, "done": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sums = sums = MAntSums(self.parameters)
        m.d.comb += [getattr(sums, name).eq(getattr(self, name)) for name in _pair_ports(self.parameters)]
        of_held, factor = Signal.like(self.coefficient), Signal.like(self.coefficient)
        m.d.sync += [factor.eq(of_held), self.done.eq(sums.done)]
        with m.If(self.valid & self.last):
            m.d.sync += of_held.eq(self.coefficient)
        left, right = (Mux(sums.done, value, 0) for value in (sums.multiplied, sums.shifted))
        with m.If(sums.done):
            m.d.sync += self.total.eq(left * factor + right)
        return m
