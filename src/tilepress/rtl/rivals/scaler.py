"""Of the online quantiser: the largest magnitude of a row's group, and 127 / largest in TF32 by a divider a row.

With the largest normalised to a significand D of 11 bits, 127 / largest is 2032 / D · 2^power, between 0.99 and 1.99 of
that power. Restoring division gives a bit of it a cycle: one before the point, twelve behind, of which the result keeps
its first eleven from the leading one on and rounds by the next. No quotient lies half way between two numbers: one that
ends at all is 127 or 1 times a power of two.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.halves import EXPONENT_BITS, SIGNIFICAND_BITS
from ...simulate.units.int8_quantiser import DIVIDING, MAGNITUDE_BITS, MOST, SCALING
from ..floating import FP16, Float, effective

TF32 = Float(11, 8)
DIVIDEND = MOST << 4  # as a significand of 11 bits
# The exponent field of 127 / 2^(31 - FP16's bias), less one that the hidden bit adds, and one that `whole` does.
LEAST_FIELD = TF32.bias + (MOST.bit_length() - 1) - (31 - FP16.bias) - 2


class LargestMagnitude(wiring.Component):
    """Of a row: FP16 without its sign. `largest` counts the value that stands at the input."""

    def __init__(self) -> None:
        super().__init__(
            {"valid": In(1), "is_new": In(1), "value": In(FP16.width), "largest": Out(MAGNITUDE_BITS)},
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        so_far = Signal(MAGNITUDE_BITS)
        magnitude = self.value[:-1]
        m.d.comb += self.largest.eq(Mux(self.is_new | (magnitude > so_far), magnitude, so_far))
        with m.If(self.valid):
            m.d.sync += so_far.eq(self.largest)
        return m


class Stages(wiring.Component):
    """What dividers do in a cycle, SCALING cycles long from the one after `start`."""

    def __init__(self) -> None:
        super().__init__({"start": In(1), "normalises": Out(1), "divides": Out(1), "rounds": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(range(SCALING + 1))
        with m.If(self.start):
            m.d.sync += left.eq(SCALING)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)
        m.d.comb += [
            self.normalises.eq(left > DIVIDING + 1),
            self.divides.eq((left > 1) & ~self.normalises),
            self.rounds.eq(left == 1),
        ]
        return m


class Divider(wiring.Component):
    """Of a row. `start` takes `largest`; `scale` is another from the edge on at which `rounds` is up."""

    def __init__(self) -> None:
        stages = dict.fromkeys(("start", "normalises", "divides", "rounds"), In(1))
        super().__init__({**stages, "largest": In(MAGNITUDE_BITS), "scale": Out(TF32.width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        divisor = Signal(SIGNIFICAND_BITS)
        power = Signal(EXPONENT_BITS + 1)
        remainder = Signal(SIGNIFICAND_BITS + 1)
        quotient = Signal(DIVIDING)
        fraction, field = self.largest[: FP16.bits - 1], self.largest[FP16.bits - 1 :]
        is_infinite = Signal()
        fits = remainder >= divisor
        with m.If(self.start):
            m.d.sync += [divisor.eq(Cat(fraction, field.any())), power.eq(~effective(field)[:EXPONENT_BITS])]
            m.d.sync += [remainder.eq(DIVIDEND), is_infinite.eq(field.all())]
        with m.If(self.normalises & ~divisor[-1]):
            m.d.sync += [divisor.eq(divisor << 1), power.eq(power + 1)]
        with m.If(self.divides):
            m.d.sync += remainder.eq(Mux(fits, remainder - divisor, remainder) << 1)
            m.d.sync += quotient.eq(Cat(fits, quotient[:-1]))
        with m.If(self.rounds):
            m.d.sync += self.scale.eq(self._rounded(quotient, power, divisor[-1], is_infinite))
        return m

    def _rounded(self, quotient: Value, power: Value, is_normal: Value, is_infinite: Value) -> Value:
        """A divisor that is still not normal is zero. `power` is 31 less the exponent of the largest."""
        whole = quotient[-1]
        significand = Mux(whole, quotient[2:], quotient[1:-1])
        up = Mux(whole, quotient[1], quotient[0])
        pattern = (power + whole + LEAST_FIELD << TF32.bits - 1) + significand + up
        return Mux(is_infinite, TF32.infinity, Mux(is_normal, pattern, 0))[: TF32.width]


class Scaler(wiring.Component):
    """Of all rows. `ends_group` stands beside the last values of groups; `scaled` is up in the last cycle before
    `scales` are those of that group."""

    def __init__(self, rows: int) -> None:
        super().__init__(
            {
                "valid": In(1),
                "is_new": In(1),
                "ends_group": In(1),
                "values": In(data.ArrayLayout(FP16.width, rows)),
                "scaled": Out(1),
                "scales": Out(data.ArrayLayout(TF32.width, rows)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.stages = stages = Stages()
        m.d.comb += [stages.start.eq(self.valid & self.ends_group), self.scaled.eq(stages.rounds)]
        for row, (value, scale) in enumerate(zip(self.values, self.scales, strict=True)):
            m.submodules[f"largest_{row}"] = largest = LargestMagnitude()
            m.submodules[f"divider_{row}"] = divider = Divider()
            m.d.comb += [largest.valid.eq(self.valid), largest.is_new.eq(self.is_new), largest.value.eq(value)]
            m.d.comb += [getattr(divider, name).eq(getattr(stages, name)) for name in ("normalises", "divides")]
            m.d.comb += [divider.start.eq(stages.start), divider.rounds.eq(stages.rounds)]
            m.d.comb += [divider.largest.eq(largest.largest), scale.eq(divider.scale)]
        return m
