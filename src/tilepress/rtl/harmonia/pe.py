"""Harmonia's reconfigurable processing element: what `simulate.units.harmonia_pe` models, cycle by cycle.

A round is up to four groups of one mode; `valid` marks the cycles, with pauses or without, that bring each sub-PE its
next pairs. Sub-PEs 0 and 1 are the first wrapper's, 2 and 3 the second's.

| mode | groups | sub-PEs | `right` |
|---|---|---|---|
| M8W4 | 1 to 4 | one a group | INT4 in `magnitude`; `sign` is not looked at |
| M8M4 | 1 to 4 | one a group | signs and magnitudes |
| M8M8 | 1 or 2 | a wrapper a group; both sub-PEs take `left` of its first | high four bits, then low four |

Beside a round's last pairs stand what belongs to its groups, in `of_groups`, and to the round: `mode`, `groups`, widths
of mantissas, and whether a dot product begins or ends in it. The accumulator takes a sum a cycle during the next round;
the total stands, and `done` is up, from the second edge after the one at which the last sum was converted.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.halves import EXPONENT_BITS
from ...simulate.units.harmonia_pe import HALF_BITS, LANES, PAIRS, SUB_PES, WHOLE_BITS
from ...simulate.units.rounding import Intermediate
from ..checks import check_one_of, check_range
from ..floating import FLOATS, FP32, unit_power
from ..group_accumulator import POWER, GroupAccumulator
from ..trees import total


class Mode(enum.Enum, shape=2):  # type: ignore[call-arg]
    """What the two sides of a product are."""

    M8W4 = 0
    M8M4 = 1
    M8M8 = 2


@dataclass(frozen=True)
class PeParameters:
    """Groups of `group` pairs, of which a sub-PE multiplies `lanes` a cycle."""

    group: int = PAIRS
    lanes: int = LANES
    intermediate: Intermediate = "fp32"

    def __post_init__(self) -> None:
        check_range("group", self.group, SUB_PES, 128)
        check_range("lanes", self.lanes, 1, self.group // SUB_PES)
        if self.group % self.lanes:
            raise ValueError(f"a group of {self.group} pairs is no multiple of {self.lanes} lanes")
        check_one_of("intermediate", self.intermediate, list(FLOATS))

    @property
    def round(self) -> int:
        """Cycles of a round; no fewer than there are sums to take from it."""
        return self.group // self.lanes

    @property
    def sum_bits(self) -> int:
        """Of a sub-PE's sum."""
        return 1 + WHOLE_BITS + HALF_BITS + (self.group - 1).bit_length()

    @property
    def fused_bits(self) -> int:
        """Of a sum of M8M8."""
        return self.sum_bits + HALF_BITS


def operand(bits: int) -> data.StructLayout:
    return data.StructLayout({"magnitude": bits, "sign": 1})


OF_GROUP = data.StructLayout({"left_exponent": EXPONENT_BITS, "right_exponent": EXPONENT_BITS, "scale": FP32.width})


class SubPe(wiring.Component):
    """`next_sum` is the sum so far, unless `begin`, and this cycle's products of signs and magnitudes."""

    def __init__(self, parameters: PeParameters) -> None:
        super().__init__(
            {
                "valid": In(1),
                "begin": In(1),
                "left": In(data.ArrayLayout(operand(WHOLE_BITS), parameters.lanes)),
                "right": In(data.ArrayLayout(operand(HALF_BITS), parameters.lanes)),
                "next_sum": Out(signed(parameters.sum_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sum = Signal.like(self.next_sum)
        products = []
        for left, right in zip(self.left, self.right, strict=True):
            size = Signal(WHOLE_BITS + HALF_BITS)
            m.d.comb += size.eq(left.magnitude * right.magnitude)
            products.append(Mux(left.sign ^ right.sign, -size, size))
        m.d.comb += self.next_sum.eq(Mux(self.begin, 0, sum) + total(products))
        with m.If(self.valid):
            m.d.sync += sum.eq(self.next_sum)
        return m


class Pe(wiring.Component):
    """One element."""

    def __init__(self, parameters: PeParameters) -> None:
        self.parameters = parameters
        left, right = (data.ArrayLayout(operand(bits), parameters.lanes) for bits in (WHOLE_BITS, HALF_BITS))
        super().__init__(
            {
                "valid": In(1),
                "mode": In(Mode),
                "left": In(data.ArrayLayout(left, SUB_PES)),
                "right": In(data.ArrayLayout(right, SUB_PES)),
                "groups": In(range(SUB_PES + 1)),
                "of_groups": In(data.ArrayLayout(OF_GROUP, SUB_PES)),
                "left_mantissa": In(range(WHOLE_BITS + 1)),
                "right_mantissa": In(range(WHOLE_BITS + 1)),
                "first": In(1),
                "last": In(1),
                "total": Out(FP32.width),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        is_fused = Signal()
        step = Signal(range(self.parameters.round))
        is_last_step = Signal()
        m.d.comb += [is_fused.eq(self.mode == Mode.M8M8), is_last_step.eq(step == self.parameters.round - 1)]
        with m.If(self.valid):
            m.d.sync += step.eq(Mux(is_last_step, 0, step + 1))
        sums = [self._sub_pe(m, index, step == 0, is_fused) for index in range(SUB_PES)]
        self._accumulate(m, self._waiting(m, sums, is_fused), self.valid & is_last_step, is_fused)
        return m

    def _sub_pe(self, m: Module, index: int, begin: Value, is_fused: Value) -> Value:
        m.submodules[f"sub_pe_{index}"] = sub_pe = SubPe(self.parameters)
        first = index & ~1  # of its wrapper
        m.d.comb += [
            sub_pe.valid.eq(self.valid),
            sub_pe.begin.eq(begin),
            sub_pe.left.eq(Mux(is_fused, self.left[first], self.left[index])),
        ]
        for mine, right in zip(sub_pe.right, self.right[index], strict=True):
            weight = right.magnitude.as_signed()
            is_weight = self.mode == Mode.M8W4
            m.d.comb += mine.sign.eq(Mux(is_weight, weight < 0, right.sign))
            m.d.comb += mine.magnitude.eq(Mux(is_weight & (weight < 0), -weight, right.magnitude))
        return sub_pe.next_sum

    def _waiting(self, m: Module, sums: list[Value], is_fused: Value) -> data.View:
        """A round's sums, each with the power of two and the scale of its group."""
        waiting = Signal(data.ArrayLayout(self._entry, SUB_PES))
        is_weight = self.mode == Mode.M8W4
        for index, (entry, sum) in enumerate(zip(waiting, sums, strict=True)):
            group = Signal(OF_GROUP, name=f"group_{index}")
            m.d.comb += group.eq(Mux(is_fused, self.of_groups[index // 2], self.of_groups[index]))
            left = unit_power(group.left_exponent, self.left_mantissa)
            right = unit_power(group.right_exponent, self.right_mantissa)
            m.d.comb += [
                entry.sum.eq(sum),
                entry.power.eq(left + Mux(is_weight, 0, right)),
                entry.scale.eq(Mux(is_weight, group.scale, FP32.one)),
            ]
        return waiting

    @property
    def _entry(self) -> data.StructLayout:
        return data.StructLayout(
            {"sum": signed(self.parameters.sum_bits), "power": POWER, "scale": FP32.width},
        )

    def _accumulate(self, m: Module, new: data.View, take: Value, is_fused: Value) -> None:
        """Sums wait in a line, of which the first goes to the accumulator in each cycle; a high half waits one more."""
        line = Signal.like(new)
        left = Signal(range(SUB_PES + 1))
        first = Signal()
        last = Signal()
        fused = Signal()
        high = Signal(signed(self.parameters.sum_bits))
        is_high = Signal()
        float_type = FLOATS[self.parameters.intermediate]
        m.submodules.accumulator = accumulator = GroupAccumulator(self.parameters.fused_bits, float_type)

        with m.If(left != 0):
            m.d.sync += [line.eq(line.as_value() >> self._entry.size), left.eq(left - 1), high.eq(line[0].sum)]
        with m.If(accumulator.valid):
            m.d.sync += first.eq(0)
        with m.If(take):
            m.d.sync += [line.eq(new), left.eq(Mux(is_fused, self.groups << 1, self.groups))]
            m.d.sync += [first.eq(self.first), last.eq(self.last), fused.eq(is_fused)]
        m.d.comb += [
            is_high.eq(fused & ~left[0]),  # of an even number that are left
            accumulator.valid.eq((left != 0) & ~is_high),
            accumulator.group.sum.eq(line[0].sum + Mux(fused, high << HALF_BITS, 0)),
            accumulator.group.power.eq(line[0].power),
            accumulator.group.scale.eq(line[0].scale),
            accumulator.group.first.eq(first),
            accumulator.group.last.eq(last & (left == 1)),
            self.total.eq(accumulator.total),
            self.done.eq(accumulator.done),
        ]
