"""Anda's bit-serial processing unit: what `simulate.units.anda_apu` models, cycle by cycle.

A group's words come one a cycle, with pauses or without: signs first, with the exponent and how many planes follow,
then the planes from the highest. The sign word makes the weights and the scale that were loaded in an earlier cycle
those of its group; what is loaded in its cycle or later waits in the other half of the double buffer.

A dot product's first and last group are marked beside their sign words. Its total stands, and `done` is up, from the
third edge after the one that takes the last plane.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.anda_apu import LANES
from ...simulate.units.dot import WEIGHT_BITS
from ...simulate.units.halves import EXPONENT_BITS
from ...simulate.units.rounding import Intermediate
from ..checks import check_one_of, check_range
from ..floating import FLOATS, FP32, unit_power
from ..group_accumulator import GroupAccumulator
from ..trees import total


@dataclass(frozen=True)
class ApuParameters:
    """`lanes` activations a word, weights of `weight_bits`, at most `mantissa` planes a group."""

    lanes: int = LANES
    weight_bits: int = WEIGHT_BITS
    mantissa: int = 16
    intermediate: Intermediate = "fp32"

    def __post_init__(self) -> None:
        check_range("lanes", self.lanes, 2, 1024)
        check_range("weight_bits", self.weight_bits, 2, 8)
        check_range("mantissa", self.mantissa, 1, 16)
        check_one_of("intermediate", self.intermediate, list(FLOATS))

    @property
    def sum_bits(self) -> int:
        """Of a group's sum: its magnitude is at most lanes · 2^(weight_bits - 1) · (2^mantissa - 1)."""
        return self.weight_bits + (self.lanes - 1).bit_length() + self.mantissa


class Apu(wiring.Component):
    """One unit."""

    def __init__(self, parameters: ApuParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "load": In(1),
                "weights": In(data.ArrayLayout(signed(parameters.weight_bits), parameters.lanes)),
                "scale": In(FP32.width),
                "valid": In(1),
                "word": In(parameters.lanes),
                "exponent": In(EXPONENT_BITS),
                "planes": In(range(parameters.mantissa + 1)),
                "first": In(1),
                "last": In(1),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m, bits = Module(), self.parameters.sum_bits
        m.submodules.accumulator = self.accumulator = accumulator = GroupAccumulator(
            bits, FLOATS[self.parameters.intermediate]
        )
        weights = Signal.like(self.weights)
        waiting = Signal.like(self.weights)
        scale = Signal.like(self.scale)
        waiting_scale = Signal.like(self.scale)
        signs = Signal.like(self.word)
        exponent = Signal.like(self.exponent)
        planes = Signal.like(self.planes)
        first = Signal()
        last = Signal()
        left = Signal.like(self.planes)
        summed = Signal()
        sum = Signal(signed(bits))

        with m.If(self.load):
            m.d.sync += [waiting.eq(self.weights), waiting_scale.eq(self.scale)]
        with m.If(self.valid & (left == 0)):
            m.d.sync += [weights.eq(waiting), scale.eq(waiting_scale)]
            m.d.sync += [signs.eq(self.word), exponent.eq(self.exponent), planes.eq(self.planes)]
            m.d.sync += [first.eq(self.first), last.eq(self.last), left.eq(self.planes), sum.eq(0)]
        with m.Elif(self.valid):
            m.d.sync += [sum.eq((sum << 1) + self._plane(signs, weights)), left.eq(left - 1)]
        m.d.sync += summed.eq(self.valid & (left == 1))

        m.d.comb += [
            accumulator.valid.eq(summed),
            accumulator.group.sum.eq(sum),
            accumulator.group.power.eq(unit_power(exponent, planes)),
            accumulator.group.scale.eq(scale),
            accumulator.group.first.eq(first),
            accumulator.group.last.eq(last),
            self.total.eq(accumulator.total),
            self.done.eq(accumulator.done),
        ]
        return m

    def _plane(self, signs: Value, weights: Value) -> Value:
        """The sum of the weights that the word's bits let pass, with their activations' signs."""
        lanes = zip(self.word, signs, weights, strict=True)
        return total([Mux(bit, Mux(sign, -weight, weight), 0) for bit, sign, weight in lanes])
