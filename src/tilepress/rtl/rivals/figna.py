"""FIGNA: what `simulate.units.rivals.Figna` models, cycle by cycle, on `lanes` pairs at a time.

FP16 activations are aligned to the largest exponent of their group, which is found while the group before is
multiplied: they come twice, as `coming` and, after their whole group has come, as `activations`. Their magnitudes of
`mantissa` bits are multiplied with integers. In the two cycles after a group's last pairs its sum is converted to FP32,
and joins the sum of groups times its scale, rounded once.

The model is one lane; integer sums are the same in any order, and a group takes group / lanes cycles.
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
from ..floating import FP16, FP32, Convert, unit_power, unpack
from ..group_accumulator import POWER
from ..trees import largest, total
from .align import align
from .scaled_sum import SCALING, ScaledSum


@dataclass(frozen=True)
class FignaParameters:
    """Groups of `group` values, whose magnitudes have `mantissa` bits; weights of `weight_bits`."""

    mantissa: int = FIGNA_MANTISSA
    lanes: int = 1
    group: int = GROUP
    weight_bits: int = WEIGHT_BITS

    def __post_init__(self) -> None:
        check_range("mantissa", self.mantissa, 1, 24)
        check_range("group", self.group, 2, 1024)
        check_range("lanes", self.lanes, 1, self.group)
        check_range("weight_bits", self.weight_bits, 2, 8)

    @property
    def sum_bits(self) -> int:
        """Of a group's sum: its magnitude is at most group · 2^(weight_bits - 1) · (2^mantissa - 1)."""
        return self.weight_bits + (self.group - 1).bit_length() + self.mantissa

    @property
    def activations(self) -> data.ArrayLayout:
        return data.ArrayLayout(FP16.width, self.lanes)


class LargestExponent(wiring.Component):
    """Of the last whole group that has come; a group is whole when values come that end it."""

    def __init__(self, parameters: FignaParameters) -> None:
        super().__init__(
            {
                "valid": In(1),
                "values": In(parameters.activations),
                "ends_group": In(1),
                "exponent": Out(EXPONENT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        so_far = Signal(EXPONENT_BITS)
        now = largest(m, [so_far, *(unpack(value, FP16).exponent for value in self.values)])
        with m.If(self.valid & self.ends_group):
            m.d.sync += [self.exponent.eq(now), so_far.eq(0)]
        with m.Elif(self.valid):
            m.d.sync += so_far.eq(now)
        return m


class Figna(wiring.Component):
    """One unit. `scaling` stands beside the pairs that end a group."""

    def __init__(self, parameters: FignaParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "coming_valid": In(1),
                "coming": In(parameters.activations),
                "coming_ends_group": In(1),
                "valid": In(1),
                "activations": In(parameters.activations),
                "weights": In(data.ArrayLayout(signed(parameters.weight_bits), parameters.lanes)),
                "ends_group": In(1),
                "scaling": In(SCALING),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.scaled_sum = scaled_sum = ScaledSum()
        m.d.comb += [self.total.eq(scaled_sum.total), self.done.eq(scaled_sum.done)]
        self._convert(m, scaled_sum, *self._multiply(m))
        return m

    def _multiply(self, m: Module) -> tuple[Value, Value]:
        """A group's integer sum and its exponent, which stand in the cycle after its last pairs."""
        m.submodules.coming = coming = LargestExponent(self.parameters)
        sum = Signal(signed(self.parameters.sum_bits))
        is_new = Signal(init=1)
        kept = Signal(EXPONENT_BITS)
        shared = Signal(EXPONENT_BITS)
        m.d.comb += [
            coming.valid.eq(self.coming_valid),
            coming.values.eq(self.coming),
            coming.ends_group.eq(self.coming_ends_group),
            shared.eq(Mux(is_new, coming.exponent, kept)),
        ]
        magnitudes = [align(m, unpack(value, FP16), shared, self.parameters.mantissa) for value in self.activations]
        products = [magnitude * weight for magnitude, weight in zip(magnitudes, self.weights, strict=True)]
        with m.If(self.valid):
            m.d.sync += [sum.eq(Mux(is_new, 0, sum) + total(products)), kept.eq(shared), is_new.eq(self.ends_group)]
        return sum, kept

    def _convert(self, m: Module, scaled_sum: ScaledSum, sum: Value, exponent: Value) -> None:
        """A group's sum into a register of FP32, and from there to the sum of groups."""
        m.submodules.convert = convert = Convert(self.parameters.sum_bits, POWER, FP32)
        m.d.comb += [convert.integer.eq(sum), convert.power.eq(unit_power(exponent, self.parameters.mantissa))]
        is_summed = Signal()
        scaling = Signal(SCALING)
        m.d.sync += [is_summed.eq(self.valid & self.ends_group), scaling.eq(self.scaling)]
        is_converted = Signal()
        converted = Signal(FP32.width)
        of_converted = Signal(SCALING)
        m.d.sync += [is_converted.eq(is_summed), converted.eq(convert.value), of_converted.eq(scaling)]
        m.d.comb += [
            scaled_sum.valid.eq(is_converted),
            scaled_sum.group.eq(converted),
            scaled_sum.scaling.eq(of_converted),
        ]
