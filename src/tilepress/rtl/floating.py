"""Floating point of hardware, combinational: exact products and sums, rounded once to nearest with ties to even.

What `simulate.units.rounding` computes, to the bit: subnormal numbers too, infinite where a sum rounds past the
largest, and +0 for a sum that is exactly zero. Inputs are finite, but for the addend of `Add`, which may be infinite.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..simulate.units.rounding import Intermediate


@dataclass(frozen=True)
class Float:
    """`bits` of significand, hidden bit included, and an exponent field."""

    bits: int
    exponent_bits: int

    @property
    def width(self) -> int:
        return self.bits + self.exponent_bits

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    @property
    def least_power(self) -> int:
        """Of two, that the lowest bit of subnormal numbers stands for."""
        return 2 - self.bias - self.bits

    @property
    def infinity(self) -> int:
        """Its pattern; that of the largest number is one less."""
        return (1 << self.exponent_bits) - 1 << self.bits - 1

    @property
    def one(self) -> int:
        return self.bias << self.bits - 1


FP16, FP32 = Float(11, 5), Float(24, 8)
FLOATS: dict[Intermediate, Float] = {"fp32": FP32, "fp16": FP16}


@dataclass(frozen=True)
class Unpacked:
    """A finite number, (-1)^sign · significand · 2^power, and its exponent field."""

    sign: Value
    significand: Value
    exponent: Value
    power: Value


def unpack(pattern: Value, format: Float) -> Unpacked:
    field = pattern[format.bits - 1 : -1]
    significand = Cat(pattern[: format.bits - 1], field.any())
    return Unpacked(pattern[-1], significand, field, effective(field) + (format.least_power - 1))


def effective(exponent: Value) -> Value:
    """What a field scales by: zero and subnormals have the scale of field 1."""
    return exponent | ~exponent.any()


def unit_power(exponent: Value, mantissa: Value) -> Value:
    """The power of two that magnitude 1 stands for under a shared exponent field of FP16."""
    return effective(exponent) - FP16.bias - mantissa + 1


def shift_right(m: Module, value: Value, places: Value) -> Signal:
    """`value` shifted; its lowest bit is one if a bit that was lost is."""
    width = len(value)
    wide = Signal(2 * width)
    result = Signal(width)
    m.d.comb += wide.eq(Cat(Const(0, width), value) >> places)
    m.d.comb += result.eq(wide[width:] | wide[:width].any())
    return result


def normalize(m: Module, value: Value) -> tuple[Value, Value]:
    """`value` shifted left until its highest bit is one, and by how many places."""
    width, places = len(value), []
    for step in reversed([1 << bit for bit in range((width - 1).bit_length())]):
        empty = Signal()
        shifted = Signal(width)
        m.d.comb += [empty.eq(~value[width - step :].any()), shifted.eq(Mux(empty, value << step, value))]
        value = shifted
        places.append(empty)
    return value, Cat(*reversed(places))


class Round(wiring.Component):
    """magnitude · 2^power to the nearest number of a format; past the largest one, that number if `saturate` is set.

    The lowest bit of a magnitude of at least two bits more than the format may stand for a remainder below it.
    """

    def __init__(self, magnitude: int, power: Shape, format: Float, saturate: bool) -> None:
        super().__init__({"sign": In(1), "magnitude": In(magnitude), "power": In(power), "value": Out(format.width)})
        self._format, self._saturate = format, saturate

    def elaborate(self, platform: object) -> Module:
        m, format = Module(), self._format
        padding = max(format.bits + 2 - len(self.magnitude), 0)
        normal, places = normalize(m, Cat(Const(0, padding), self.magnitude))
        lead = Signal(signed(16))
        field = Signal(15)
        missing = Signal(range(format.bits + 2))
        m.d.comb += lead.eq(self.power - places + (len(normal) - padding - format.bits - format.least_power))
        with m.If(lead < 0):
            m.d.comb += missing.eq(Mux(lead < -format.bits, format.bits + 1, -lead))
        with m.Else():
            m.d.comb += field.eq(lead)
        kept = shift_right(m, normal, missing)
        significand, half, rest = kept[-format.bits :], kept[-format.bits - 1], kept[: -format.bits - 1]
        pattern = Signal(16 + format.bits)
        up = half & (rest.any() | significand[0])
        m.d.comb += pattern.eq((field << format.bits - 1) + significand + up)
        largest = Mux(pattern < format.infinity, pattern, format.infinity - self._saturate)
        m.d.comb += self.value.eq(Cat(Mux(self.magnitude.any(), largest, 0)[: format.width - 1], self.sign))
        return m


def product_layout(a: Float, b: Float) -> data.StructLayout:
    return data.StructLayout({"sign": 1, "magnitude": a.bits + b.bits, "power": signed(10)})


class Multiply(wiring.Component):
    """a · b, exactly."""

    def __init__(self, a: Float, b: Float) -> None:
        super().__init__({"a": In(a.width), "b": In(b.width), "product": Out(product_layout(a, b))})
        self._formats = a, b

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b = (unpack(pattern, format) for pattern, format in zip((self.a, self.b), self._formats, strict=True))
        m.d.comb += [
            self.product.sign.eq(a.sign ^ b.sign),
            self.product.magnitude.eq(a.significand * b.significand),
            self.product.power.eq(a.power + b.power),
        ]
        return m


class Add(wiring.Component):
    """product + addend, rounded to `format`, the addend's own.

    Both stand in one field: the addend two places above the product or below that, as many places as their powers of
    two ask for. An addend still higher leaves of the product only that it is there. One so low that it reaches past
    the field's end leaves there only that it is: below the result's last place, as the field goes on far enough below
    a product of at least `product_bits` bits. Products may have fewer where no addend reaches below them, as those of
    two subnormal numbers.
    """

    def __init__(self, product: data.StructLayout, product_bits: int, format: Float = FP32) -> None:
        super().__init__({"product": In(product), "addend": In(format.width), "value": Out(format.width)})
        self._format, self._below = format, format.bits + 3 - product_bits

    def elaborate(self, platform: object) -> Module:
        m, format = Module(), self._format
        product, addend = self.product, unpack(self.addend, format)
        above = len(product.magnitude) + 2
        low = self._below + above  # of the addend's lowest bit, where it stands highest
        width = low + format.bits
        distance = Signal(signed(12))
        is_far = Signal()
        m.d.comb += distance.eq(product.power + above - addend.power)
        m.d.comb += is_far.eq((distance < 0) | ~product.magnitude.any())
        places = Signal(range(width + 1))
        m.d.comb += places.eq(Mux(is_far, 0, Mux(distance > width, width, distance)))
        aligned = shift_right(m, Cat(Const(0, low), addend.significand), places)
        multiplied = Signal(width)
        total = Signal(signed(width + 2))
        m.d.comb += multiplied.eq(Mux(is_far, product.magnitude.any(), product.magnitude << self._below))
        m.d.comb += total.eq(
            Mux(product.sign, -multiplied, multiplied) + Mux(addend.sign, -aligned, aligned),
        )
        m.submodules.round = round = Round(width + 1, signed(12), format, saturate=False)
        m.d.comb += [
            round.sign.eq(total < 0),
            round.magnitude.eq(Mux(total < 0, -total, total)),
            round.power.eq(Mux(is_far, addend.power - low, product.power - self._below)),
            self.value.eq(Mux(self.addend[:-1] == format.infinity, self.addend, round.value)),
        ]
        return m


class MultiplyAdd(wiring.Component):
    """a · b + addend, rounded once to `format`. Unless both are subnormal, a product has the bits of the narrower."""

    def __init__(self, a: Float, b: Float, format: Float = FP32) -> None:
        super().__init__(
            {"a": In(a.width), "b": In(b.width), "addend": In(format.width), "value": Out(format.width)},
        )
        self._multiply, self._add = Multiply(a, b), Add(product_layout(a, b), min(a.bits, b.bits), format)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply, m.submodules.add = multiply, add = self._multiply, self._add
        m.d.comb += [multiply.a.eq(self.a), multiply.b.eq(self.b), add.product.eq(multiply.product)]
        m.d.comb += [add.addend.eq(self.addend), self.value.eq(add.value)]
        return m


class Convert(wiring.Component):
    """A signed integer times 2^power in `format`, at most its largest number; the pattern is always FP32's."""

    def __init__(self, integer: int, power: Shape, format: Float) -> None:
        super().__init__({"integer": In(signed(integer)), "power": In(power), "value": Out(FP32.width)})
        self._format = format

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.round = round = Round(len(self.integer), self.power.shape(), self._format, saturate=True)
        m.d.comb += [
            round.sign.eq(self.integer < 0),
            round.magnitude.eq(Mux(self.integer < 0, -self.integer, self.integer)),
            round.power.eq(self.power),
        ]
        if self._format == FP32:
            m.d.comb += self.value.eq(round.value)
        else:
            m.submodules.widen = widen = Widen(self._format)
            m.d.comb += [widen.narrow.eq(round.value), self.value.eq(widen.value)]
        return m


class Widen(wiring.Component):
    """A number of a narrower format in FP32, exactly."""

    def __init__(self, format: Float) -> None:
        super().__init__({"narrow": In(format.width), "value": Out(FP32.width)})
        self._format = format

    def elaborate(self, platform: object) -> Module:
        m, number = Module(), unpack(self.narrow, self._format)
        m.submodules.round = round = Round(self._format.bits, signed(12), FP32, saturate=False)
        m.d.comb += [
            round.sign.eq(number.sign),
            round.magnitude.eq(number.significand),
            round.power.eq(number.power),
            self.value.eq(round.value),
        ]
        return m
