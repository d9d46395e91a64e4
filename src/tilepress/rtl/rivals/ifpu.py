"""iFPU, as Anda's paper describes it: FP16 activations are aligned to the largest exponent of their group, with a long
mantissa, and weights are multiplied with them bit by bit.

The text has neither the mantissa, which is FIGNA's if not given, nor the order of things, which is ours: `load` takes a
group's activations apart and aligns them, all in one cycle, beside the last word of the group before. Then its weights
come as words of a bit each, the highest first, with pauses or without, and the sum of the activations that a word's
bits let pass joins twice the sum so far, or, of the highest bits, which are the weights' signs, is taken from it.
Conversion, scaling and accumulation are those of Anda's unit: three stages, so that a total stands, and `done` is up,
from the third edge after that of the last word.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.anda_compressor import GROUP
from ...simulate.units.dot import WEIGHT_BITS
from ...simulate.units.halves import EXPONENT_BITS
from ...simulate.units.rivals import FIGNA_MANTISSA
from ..checks import check_range
from ..floating import FP16, FP32, unit_power, unpack
from ..group_accumulator import STAGES, GroupAccumulator
from ..trees import largest, total
from .align import align


@dataclass(frozen=True)
class IfpuParameters:
    """`lanes` activations a group, whose magnitudes have `mantissa` bits; weights of `weight_bits`."""

    mantissa: int = FIGNA_MANTISSA
    lanes: int = GROUP
    weight_bits: int = WEIGHT_BITS

    def __post_init__(self) -> None:
        check_range("mantissa", self.mantissa, 1, 24)
        check_range("lanes", self.lanes, 2, 1024)
        check_range("weight_bits", self.weight_bits, 2, 8)

    @property
    def sum_bits(self) -> int:
        """Of a group's sum: its magnitude is at most lanes · 2^(weight_bits - 1) · (2^mantissa - 1)."""
        return self.weight_bits + (self.lanes - 1).bit_length() + self.mantissa

    def cycles(self, groups: int) -> int:
        """From the first word of `groups` groups to their sum."""
        return groups * self.weight_bits + STAGES


class Ifpu(wiring.Component):
    """One unit. `scale`, `first` and `last` stand beside a group's last word."""

    def __init__(self, parameters: IfpuParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "load": In(1),
                "activations": In(data.ArrayLayout(FP16.width, parameters.lanes)),
                "valid": In(1),
                "word": In(parameters.lanes),
                "scale": In(FP32.width),
                "first": In(1),
                "last": In(1),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m, bits, last_place = Module(), self.parameters.sum_bits, self.parameters.weight_bits - 1
        m.submodules.accumulator = accumulator = GroupAccumulator(bits, FP32)
        magnitudes, exponent = self._aligned(m)
        place, sum, plane, is_summed = (
            Signal(range(last_place + 1)),
            Signal(signed(bits)),
            Signal(signed(bits)),
            Signal(),
        )
        group = Signal.like(accumulator.group)

        m.d.comb += plane.eq(total([Mux(bit, value, 0) for bit, value in zip(self.word, magnitudes, strict=True)]))
        with m.If(self.valid):
            m.d.sync += sum.eq(Mux(place == 0, -plane, (sum << 1) + plane))
            m.d.sync += place.eq(Mux(place == last_place, 0, place + 1))
            m.d.sync += [group.power.eq(unit_power(exponent, self.parameters.mantissa)), group.scale.eq(self.scale)]
            m.d.sync += [group.first.eq(self.first), group.last.eq(self.last)]
        m.d.sync += is_summed.eq(self.valid & (place == last_place))
        m.d.comb += [
            accumulator.group.eq(group),
            accumulator.group.sum.eq(sum),
            accumulator.valid.eq(is_summed),
            self.total.eq(accumulator.total),
            self.done.eq(accumulator.done),
        ]
        return m

    def _aligned(self, m: Module) -> tuple[list[Value], Value]:
        """Registers of the group's signed magnitudes, and of its exponent."""
        values = [unpack(value, FP16) for value in self.activations]
        shared = largest(m, [value.exponent for value in values])
        exponent = Signal(EXPONENT_BITS)
        magnitudes = [Signal(signed(1 + self.parameters.mantissa), name=f"magnitude_{n}") for n in range(len(values))]
        with m.If(self.load):
            m.d.sync += exponent.eq(shared)
            for register, value in zip(magnitudes, values, strict=True):
                m.d.sync += register.eq(align(m, value, shared, self.parameters.mantissa))
        return magnitudes, exponent
