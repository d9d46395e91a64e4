"""The third stage: every lane subtracts its zero point and multiplies by its scale.

The product is that of float32, rounded to bf16: for scales of up to 16 bits float32 holds it, so that it is rounded
once; one with a scale of float32 is rounded twice, as software does. Any NaN becomes 0x7FC0.
"""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.zero_points import ZERO_POINT_BITS
from .parameters import SCALES, SIGNIFICANDS, VALUE_BITS, Control, Parameters, ScaleQueue

BIAS = 127  # of bf16 and float32
NAN, INFINITY = 0x7FC0, 0x7F80
FRACTION = 7  # bits of bf16's mantissa
SINGLE = 24  # bits of float32's significand
LOST = SINGLE + 3  # from so many on, a shift to the right leaves less than half of the last bit


class Lane(wiring.Component):
    """`value`: bf16. `low`, `high`: words of the scale factor queue, the scale and what lies beside it: its upper half
    or the zero point. `result`: bf16."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        words = dict.fromkeys(("value", "low", "high"), In(VALUE_BITS))
        super().__init__({"control": In(Control), **words, "result": Out(VALUE_BITS)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        value = self.value
        if self.parameters.has_zero_points:
            value = Signal(VALUE_BITS, name="centred")
            m.d.comb += value.eq(Mux(self.control.zero_points, self._centred(m), self.value))
        first = _fields(m, "value", value, FRACTION)
        m.d.comb += self.result.eq(_product(m, first, self._scale(m), self.parameters.scale_significand))
        return m

    def _centred(self, m: Module) -> Any:
        """bf16 of an unsigned integer less its zero point, exact: eight bits and a sign, in steps of the zero point."""
        exponent = self.value[FRACTION : FRACTION + 8]
        integer = Signal(ZERO_POINT_BITS)
        steps = Signal(ZERO_POINT_BITS)
        difference = Signal(ZERO_POINT_BITS + 1)
        m.d.comb += [
            integer.eq(Mux(exponent == 0, 0, Cat(self.value[:FRACTION], Const(1, 1)) >> ~(exponent + 1)[:3])),
            steps.eq(integer << (ZERO_POINT_BITS - self.control.code_bits)[:3]),
            difference.eq(steps - self.high[:ZERO_POINT_BITS]),
        ]
        magnitude = Signal(ZERO_POINT_BITS)
        m.d.comb += magnitude.eq(Mux(difference[-1], -difference, difference))
        zeros = _leading_zeros(magnitude)
        normal = (magnitude << zeros)[:FRACTION]
        power = (BIAS - 1 + self.control.code_bits - zeros)[:8]
        return Mux(difference == 0, 0, Cat(normal, power, difference[-1]))

    def _scale(self, m: Module) -> "Fields":
        """1.0 where the format has none."""
        bits = self.parameters.scale_significand
        fields = Fields("scale", bits)
        m.d.comb += [fields.exponent.eq(BIAS), fields.significand.eq(1 << (bits - 1))]
        with m.Switch(self.control.scale):
            for name in self.parameters.scales:
                with m.Case(SCALES[name]):
                    getattr(self, f"_{name}")(m, fields)
        return fields

    def _e8m0(self, m: Module, fields: "Fields") -> None:
        """2^(code - 127), of which code 0 is a subnormal float32, half of exponent 1."""
        code, bits = self.low[:8], fields.bits
        m.d.comb += [
            fields.exponent.eq(Mux(code == 0, 1, code)),
            fields.significand.eq(Mux(code == 0, 1 << (bits - 2), 1 << (bits - 1))),
            fields.nan.eq(code == 0xFF),
        ]

    def _bf16(self, m: Module, fields: "Fields") -> None:
        fields.assign(m, self.low, FRACTION, 8)

    def _fp16(self, m: Module, fields: "Fields") -> None:
        fields.assign(m, self.low, SIGNIFICANDS["fp16"] - 1, 5)

    def _fp32(self, m: Module, fields: "Fields") -> None:
        fields.assign(m, Cat(self.low, self.high), SINGLE - 1, 8)


class Fields:
    """A number's parts: `exponent` biased as bf16's, 1 for subnormals; `significand` of `bits`, hidden one first."""

    def __init__(self, name: str, bits: int) -> None:
        self.bits = bits
        self.sign, self.nan, self.infinite = (Signal(name=f"{name}_{part}") for part in ("sign", "nan", "infinite"))
        self.exponent = Signal(8, name=f"{name}_exponent")
        self.significand = Signal(bits, name=f"{name}_significand")

    def assign(self, m: Module, word: Any, fraction: int, exponent_bits: int) -> None:
        """From an IEEE number."""
        mantissa, exponent = word[:fraction], word[fraction : fraction + exponent_bits]
        normal, special = exponent != 0, exponent == (1 << exponent_bits) - 1
        bias = (1 << (exponent_bits - 1)) - 1
        m.d.comb += [
            self.sign.eq(word[fraction + exponent_bits]),
            self.exponent.eq(Mux(normal, exponent, 1) + (BIAS - bias)),
            self.significand.eq(Cat(mantissa, normal) << (self.bits - 1 - fraction)),
            self.nan.eq(special & (mantissa != 0)),
            self.infinite.eq(special & (mantissa == 0)),
        ]


def _fields(m: Module, name: str, word: Any, fraction: int) -> Fields:
    fields = Fields(name, fraction + 1)
    fields.assign(m, word, fraction, VALUE_BITS - 1 - fraction)
    return fields


def _product(m: Module, first: Fields, second: Fields, second_bits: int) -> Any:
    """bf16."""
    product_bits = first.bits + second_bits
    width = max(product_bits, SINGLE + 2)
    aligned = Signal(width)  # its highest bit is worth 2^(exponent - BIAS)
    exponent = Signal(range(-2 * BIAS, 4 * BIAS))
    m.d.comb += [
        aligned.eq((first.significand * second.significand) << (width - product_bits)),
        exponent.eq(first.exponent + second.exponent - (BIAS - 1)),
    ]
    magnitude = _rounded(m, aligned, exponent)
    zero = (first.significand == 0) | (second.significand == 0)
    infinite = first.infinite | second.infinite
    nan = first.nan | second.nan | (infinite & zero)
    finite = Cat(magnitude, first.sign ^ second.sign)
    signed_infinity = Cat(Const(INFINITY, VALUE_BITS - 1), first.sign ^ second.sign)
    return Mux(nan, NAN, Mux(infinite, signed_infinity, finite))


def _rounded(m: Module, aligned: Any, exponent: Any) -> Any:
    """The magnitude's bf16, without its sign: rounded to float32, then to bf16, each to nearest, ties to even."""
    width = len(aligned)
    zeros = Signal(range(width))
    m.d.comb += zeros.eq(_leading_zeros(Cat(Const(0, -width % (1 << ceil_log2(width))), aligned)))
    left = Signal(range(width + 1))
    right = Signal(range(LOST + 1))
    below = exponent < 1  # the highest bit is worth less than a subnormal's
    with m.If(below):
        m.d.comb += right.eq(Mux(1 - exponent > LOST, LOST, 1 - exponent))
    with m.Else():
        m.d.comb += left.eq(Mux(zeros < exponent, zeros, exponent - 1))
    shifted = Signal(width + LOST)
    m.d.comb += shifted.eq(Cat(Const(0, LOST), (aligned << left)[:width]) >> right)
    significand, rest = shifted[-SINGLE:], shifted[:-SINGLE]
    field = Mux(significand[-1], exponent - left, 0)
    up = rest[-1] & (rest[:-1].any() | significand[0])
    single = Signal(SINGLE - 1 + 9)
    overflow = Signal()
    m.d.comb += [
        single.eq(Cat(significand[:-1], field[:9]) + up),
        overflow.eq(single >= INFINITY << 16),
    ]
    half = ((single + 0x7FFF + single[16]) >> 16)[: VALUE_BITS - 1]
    return Mux(overflow, INFINITY, half)


def _leading_zeros(word: Any) -> Any:
    """Zeros above the highest set bit of a word as wide as a power of two; one less than its width if there is none."""
    half = len(word) // 2
    if half == 1:
        return ~word[1]
    low, high = word[:half], word[half:]
    none = high == 0
    return Cat(Mux(none, _leading_zeros(low), _leading_zeros(high)), none)


class Scaling(wiring.Component):
    """`results` of the `values` of lanes whose bit is set, zeros of the others. Lane n of vOp k has element k·W + n of
    the tile: neuron (element % 32) // 2, and input (element // 32)·2 + element % 2. `queue`: the tile's scales."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        values = data.ArrayLayout(VALUE_BITS, parameters.W)
        super().__init__(
            {
                "control": In(Control),
                "operation": In(range(parameters.operations)),
                "queue": In(ScaleQueue),
                "two_groups": In(1),
                "bits": In(parameters.W),
                "values": In(values),
                "results": Out(values),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        queue = self.queue.as_value()
        for n in range(self.parameters.W):
            m.submodules[f"lane_{n}"] = lane = Lane(self.parameters)
            element = Cat(Const(n, ceil_log2(self.parameters.W)), self.operation)
            neuron, half = element[1:5], element[8]
            m.d.comb += [
                lane.control.eq(self.control),
                lane.value.eq(self.values[n]),
                lane.low.eq(queue.word_select(Cat(neuron, half & self.two_groups), VALUE_BITS)),
                lane.high.eq(queue.word_select(Cat(neuron, Const(1, 1)), VALUE_BITS)),
                self.results[n].eq(Mux(self.bits[n], lane.result, 0)),
            ]
        return m
