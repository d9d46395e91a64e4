"""INT8 quantisers: what `simulate.units.int8_quantiser` models, cycle by cycle. A column of FP16 values comes a cycle,
with pauses or without.

- offline: `codes` of values and the `scale` beside them stand, and `codes_valid` is up, from the next edge on.
- online: values are found again in a memory outside, as in Harmonia's converter, when the scale of their group is
  known: at `write_address` the memory has to keep `values`, and from `read_address` it gives `stored` in the same
  cycle. Addresses are places in two groups, which take turns; a place is read at the latest in the cycle in which it
  is written again. Codes of `place` stand while `codes_valid` is up; `scales`, TF32, are those of the group whose place
  0 stands.

What is infinite or not a number counts as infinite: it saturates to ±127.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...simulate.units.int8_quantiser import CODE_BITS, GROUP, MOST, ROWS, SCALING, Scale
from ..checks import check_one_of, check_range
from ..floating import FP16, Float, Multiply, shift_right
from .scaler import TF32, Scaler


@dataclass(frozen=True)
class QuantiserParameters:
    """Columns of `rows` values; scales that are given (offline) or those of groups of `group` values of a row."""

    scale: str = "offline"
    rows: int = ROWS
    group: int = GROUP

    def __post_init__(self) -> None:
        check_one_of("scale", self.scale, [kind.value for kind in Scale])
        check_range("rows", self.rows, 1, 64)
        check_range("group", self.group, SCALING, 1024)

    @property
    def is_online(self) -> bool:
        return self.scale == Scale.online

    @property
    def values(self) -> data.ArrayLayout:
        return data.ArrayLayout(FP16.width, self.rows)


class Quantise(wiring.Component):
    """value · scale to the nearest integer, ties to even, within ±127."""

    def __init__(self, scale: Float) -> None:
        super().__init__({"value": In(FP16.width), "scale": In(scale.width), "code": Out(signed(CODE_BITS))})
        self._multiply = Multiply(FP16, scale)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply = multiply = self._multiply
        m.d.comb += [multiply.a.eq(self.value), multiply.b.eq(self.scale)]
        size = self._size(m, multiply.product)
        m.d.comb += self.code.eq(Mux(multiply.product.sign, -size, size))
        return m

    def _size(self, m: Module, product: data.View) -> Value:
        """A power of two of 0 or more is that of a product with a normal number: it is zero, or saturates."""
        bits = len(product.magnitude)
        places = Signal(range(bits + 3))
        size = Signal(CODE_BITS - 1)
        m.d.comb += places.eq(Mux(product.power >= 0, 0, Mux(product.power < -bits - 2, bits + 2, -product.power)))
        kept = shift_right(m, Cat(Const(0, 2), product.magnitude), places)
        integer, up = kept[2:], kept[1] & (kept[0] | kept[2])
        rounded = integer[: CODE_BITS - 1] + up
        is_infinite = (self.value[FP16.bits - 1 : -1].all() | _field(self.scale).all()) & product.magnitude.any()
        saturates = is_infinite | integer[CODE_BITS - 1 :].any() | rounded[CODE_BITS - 1]
        m.d.comb += size.eq(Mux(saturates, MOST, rounded))
        return size


def _field(scale: Value) -> Value:
    """Its exponent's; FP16 and TF32 have as many bits of significand."""
    return scale[FP16.bits - 1 : -1]


class Places:
    """A counter of places in a group; groups use the memory's halves in turn."""

    def __init__(self, parameters: QuantiserParameters, name: str) -> None:
        self.place, self._half = Signal(range(parameters.group), name=f"{name}_place"), Signal(name=f"{name}_half")
        self.is_last = self.place == parameters.group - 1
        self.address = self._half * parameters.group + self.place

    def advance(self, m: Module) -> None:
        m.d.sync += [self.place.eq(Mux(self.is_last, 0, self.place + 1)), self._half.eq(self._half ^ self.is_last)]


class Quantiser(wiring.Component):
    """One quantiser; with offline scales it has no memory."""

    def __init__(self, parameters: QuantiserParameters) -> None:
        self.parameters = parameters
        ports = {
            "valid": In(1),
            "values": In(parameters.values),
            "codes_valid": Out(1),
            "codes": Out(data.ArrayLayout(signed(CODE_BITS), parameters.rows)),
        }
        address = Out(range(2 * parameters.group))
        online = {
            "write_address": address,
            "read_address": address,
            "stored": In(parameters.values),
            "place": Out(range(parameters.group)),
            "scales": Out(data.ArrayLayout(TF32.width, parameters.rows)),
        }
        super().__init__(ports | (online if parameters.is_online else {"scale": In(FP16.width)}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.parameters.is_online:
            self._online(m)
        else:
            self._quantise(m, self.valid, self.values, [self.scale] * self.parameters.rows, FP16)
        return m

    def _quantise(self, m: Module, valid: Value, values: data.View, scales: list[Value], format: Float) -> None:
        m.d.sync += self.codes_valid.eq(valid)
        for row, (value, scale, code) in enumerate(zip(values, scales, self.codes, strict=True)):
            m.submodules[f"quantise_{row}"] = quantise = Quantise(format)
            m.d.comb += [quantise.value.eq(value), quantise.scale.eq(scale)]
            with m.If(valid):
                m.d.sync += code.eq(quantise.code)

    def _online(self, m: Module) -> None:
        m.submodules.scaler = scaler = Scaler(self.parameters.rows)
        writing, reading = Places(self.parameters, "write"), Places(self.parameters, "read")
        is_busy = Signal()
        m.d.comb += [
            scaler.valid.eq(self.valid),
            scaler.is_new.eq(writing.place == 0),
            scaler.ends_group.eq(writing.is_last),
            scaler.values.eq(self.values),
            self.write_address.eq(writing.address),
            self.read_address.eq(reading.address),
            self.scales.eq(scaler.scales),
        ]
        m.d.sync += self.place.eq(reading.place)
        with m.If(self.valid):
            writing.advance(m)
        with m.If(is_busy):
            reading.advance(m)
        with m.If(scaler.scaled):
            m.d.sync += is_busy.eq(1)
        with m.Elif(reading.is_last):
            m.d.sync += is_busy.eq(0)
        self._quantise(m, is_busy, self.stored, list(scaler.scales), TF32)
