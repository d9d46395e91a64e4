"""Anda's bit-plane compressor: what `simulate.units.anda_compressor` models, cycle by cycle.

While `ready`, a `valid` round brings each lane a group of FP16 values. In that cycle a lane takes them apart, catches
their largest exponent, loads its aligners, and puts the signs into its output word; in each of the next `planes` cycles
an aligner whose distance is zero shifts its significand's highest bit out, and any other puts out zero and counts down.
`word_valid` is up while the words of a round stand, from the edge after it was taken: signs first, with their exponent,
then planes from the highest. Rounds may follow each other without a pause.

A group with a value that is infinite or not a number has exponent 31, which no other group has.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...formats.bfp_format import MAX_MANTISSA
from ...simulate.units.anda_compressor import GROUP, LANES
from ...simulate.units.halves import EXPONENT_BITS, SIGNIFICAND_BITS
from ..checks import check_range
from ..floating import FP16, Unpacked, effective, unpack
from ..trees import largest


@dataclass(frozen=True)
class CompressorParameters:
    """`lanes` groups of `group` values at a time, at most `mantissa` planes a group."""

    lanes: int = LANES
    group: int = GROUP
    mantissa: int = MAX_MANTISSA

    def __post_init__(self) -> None:
        check_range("lanes", self.lanes, 1, 64)
        check_range("group", self.group, 2, 128)
        check_range("mantissa", self.mantissa, 1, MAX_MANTISSA)


class Lane(wiring.Component):
    """One group: `load` takes its values, `shift` puts the next plane out."""

    def __init__(self, group: int) -> None:
        super().__init__(
            {
                "load": In(1),
                "shift": In(1),
                "values": In(data.ArrayLayout(FP16.width, group)),
                "word": Out(group),
                "exponent": Out(EXPONENT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        values = [unpack(value, FP16) for value in self.values]
        shared = largest(m, [value.exponent for value in values])
        bits = Cat(self._aligner(m, value, shared) for value in values)
        with m.If(self.load):
            m.d.sync += [self.word.eq(Cat(value.sign for value in values)), self.exponent.eq(shared)]
        with m.Elif(self.shift):
            m.d.sync += self.word.eq(bits)
        return m

    def _aligner(self, m: Module, value: Unpacked, shared: Value) -> Value:
        """One value's next bit."""
        significand = Signal(SIGNIFICAND_BITS)
        distance = Signal(EXPONENT_BITS)
        is_ready = distance == 0
        with m.If(self.load):
            m.d.sync += significand.eq(value.significand)
            m.d.sync += distance.eq(effective(shared) - effective(value.exponent))
        with m.Elif(self.shift):
            with m.If(is_ready):
                m.d.sync += significand.eq(significand << 1)
            with m.Else():
                m.d.sync += distance.eq(distance - 1)
        return is_ready & significand[-1]


class Compressor(wiring.Component):
    """All lanes, in step."""

    def __init__(self, parameters: CompressorParameters) -> None:
        self.parameters = parameters
        group = data.ArrayLayout(FP16.width, parameters.group)
        super().__init__(
            {
                "planes": In(range(parameters.mantissa + 1)),
                "valid": In(1),
                "ready": Out(1),
                "values": In(data.ArrayLayout(group, parameters.lanes)),
                "word_valid": Out(1),
                "words": Out(data.ArrayLayout(parameters.group, parameters.lanes)),
                "exponents": Out(data.ArrayLayout(EXPONENT_BITS, parameters.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal.like(self.planes)
        load = Signal()
        m.d.comb += [self.ready.eq(left == 0), load.eq(self.valid & self.ready)]
        m.d.sync += self.word_valid.eq(load | (left != 0))
        with m.If(load):
            m.d.sync += left.eq(self.planes)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        for index in range(self.parameters.lanes):
            m.submodules[f"lane_{index}"] = lane = Lane(self.parameters.group)
            m.d.comb += [lane.load.eq(load), lane.shift.eq(left != 0), lane.values.eq(self.values[index])]
            m.d.comb += [self.words[index].eq(lane.word), self.exponents[index].eq(lane.exponent)]
        return m
