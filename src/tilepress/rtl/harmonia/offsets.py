"""Harmonia's online generator of key offsets: what `simulate.units.harmonia_offsets` models, cycle by cycle.

Keys of the first tokens come a column of the array a cycle: all columns of the head, rounded up to whole arrays, for
eight tokens, then for the next eight. A register a channel keeps the value of largest magnitude, the earliest of
equals. After the pass that is marked `last_pass`, channels go one a cycle through a list that stays sorted. `done` is
up in the first cycle in which the list stands; it stays until the next keys come. While `ready` is down none are taken.

A chosen channel's offset is half of its entry's `extreme`: `KeySubtractor` takes that with its exponent one lower.
"""

from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...simulate.units.harmonia_converter import COLUMNS, ROWS
from ..checks import check_range
from ..floating import FP16, FP32, Round, Unpacked, effective, unpack
from ..trees import tree


@dataclass(frozen=True)
class OffsetParameters:
    """An array of `rows` × `columns`; heads of at most `channels`, of which `top` have an offset."""

    rows: int = ROWS
    columns: int = COLUMNS
    channels: int = 128
    top: int = 4

    def __post_init__(self) -> None:
        check_range("rows", self.rows, 1, 64)
        check_range("columns", self.columns, 1, 64)
        check_range("channels", self.channels, self.columns, 1024)
        check_range("top", self.top, 1, self.channels)
        if self.channels % self.columns:
            raise ValueError(f"{self.channels} channels are no multiple of {self.columns} columns")

    @property
    def entries(self) -> data.ArrayLayout:
        """The list: an extreme is FP16."""
        entry = data.StructLayout({"is_set": 1, "extreme": FP16.width, "channel": range(self.channels)})
        return data.ArrayLayout(entry, self.top)


class OffsetGenerator(wiring.Component):
    """One generator."""

    def __init__(self, parameters: OffsetParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "channels": In(range(parameters.channels + 1)),
                "last_pass": In(1),
                "valid": In(1),
                "ready": Out(1),
                "keys": In(data.ArrayLayout(FP16.width, parameters.rows)),
                "entries": Out(parameters.entries),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.extremes = extremes = Memory(shape=FP16.width, depth=self.parameters.channels, init=[])
        kept, write = extremes.read_port(domain="comb"), extremes.write_port()
        channel = Signal(range(self.parameters.channels))
        is_first_pass = Signal(init=1)
        is_listing = Signal()
        accepted = Signal()
        is_array_end = Signal()
        is_last = Signal()
        before = Mux(is_first_pass, 0, kept.data)
        m.d.comb += [
            self.ready.eq(~is_listing),
            accepted.eq(self.valid & self.ready),
            is_array_end.eq(channel % self.parameters.columns == self.parameters.columns - 1),
            is_last.eq((channel + 1 >= self.channels) & (is_listing | is_array_end)),
            kept.addr.eq(channel),
            write.addr.eq(channel),
            write.en.eq(accepted),
            write.data.eq(larger(m, before, tree(list(self.keys), lambda a, b: larger(m, a, b)))),
        ]
        with m.If(accepted | is_listing):
            m.d.sync += channel.eq(Mux(is_last, 0, channel + 1))
        with m.If(accepted):
            m.d.sync += [entry.is_set.eq(0) for entry in self.entries]
            m.d.sync += is_first_pass.eq(is_first_pass & ~is_last)
        with m.If(accepted & is_last & self.last_pass):
            m.d.sync += [is_listing.eq(1), is_first_pass.eq(1)]
        with m.If(is_listing):
            m.d.sync += is_listing.eq(~is_last)
            self._insert(m, channel, kept.data)
        m.d.sync += self.done.eq(is_listing & is_last)
        return m

    def _insert(self, m: Module, channel: Value, extreme: Value) -> None:
        """An entry stays if it is at least as large; the first that is not becomes the new one, and the others move."""
        before, stays_before = None, Const(1)
        for entry in self.entries:
            stays = Signal()
            m.d.comb += stays.eq(entry.is_set & (size(entry.extreme) >= size(extreme)))
            with m.If(~stays & stays_before):
                m.d.sync += [entry.is_set.eq(1), entry.extreme.eq(extreme), entry.channel.eq(channel)]
            if before is not None:
                with m.Elif(~stays):
                    m.d.sync += entry.eq(before)
            before, stays_before = entry, stays


def size(half: Value) -> Value:
    return half[:-1]


def larger(m: Module, first: Value, second: Value) -> Value:
    """Of two FP16 values the one of larger magnitude, the first of equal ones."""
    result = Signal(FP16.width)
    m.d.comb += result.eq(Mux(size(second) > size(first), second, first))
    return result


class KeySubtractor(wiring.Component):
    """A column of keys less its channel's offset: an FP32 difference, then FP16, at most its largest number."""

    def __init__(self, parameters: OffsetParameters) -> None:
        keys = data.ArrayLayout(FP16.width, parameters.rows)
        super().__init__(
            {
                "channel": In(range(parameters.channels)),
                "entries": In(parameters.entries),
                "keys": In(keys),
                "smooth": Out(keys),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        extreme = Signal(FP16.width)
        for entry in self.entries:
            with m.If(entry.is_set & (entry.channel == self.channel)):
                m.d.comb += extreme.eq(entry.extreme)
        for row, (key, smooth) in enumerate(zip(self.keys, self.smooth, strict=True)):
            m.submodules[f"difference_{row}"] = difference = HalvedDifference()
            m.d.comb += [difference.key.eq(key), difference.extreme.eq(extreme), smooth.eq(difference.value)]
        return m


class HalvedDifference(wiring.Component):
    """key - extreme / 2, all in FP16, rounded to FP32 in between."""

    def __init__(self) -> None:
        super().__init__({"key": In(FP16.width), "extreme": In(FP16.width), "value": Out(FP16.width)})

    def elaborate(self, platform: object) -> Module:
        m, key, extreme = Module(), unpack(self.key, FP16), unpack(self.extreme, FP16)
        bits = FP16.bits + 31
        exact = Signal(signed(bits + 1))
        m.d.comb += exact.eq(integer(m, key) - (integer(m, extreme) >> 1))
        m.submodules.single = single = Round(bits, signed(6), FP32, saturate=False)
        m.submodules.half = half = Round(FP32.bits + 2, signed(9), FP16, saturate=True)
        of_zeros = key.sign & ~extreme.sign
        rounded = unpack(single.value, FP32)
        m.d.comb += [
            single.sign.eq(Mux(exact == 0, of_zeros, exact < 0)),
            single.magnitude.eq(Mux(exact < 0, -exact, exact)),
            single.power.eq(FP16.least_power - 1),
            half.sign.eq(rounded.sign),
            half.magnitude.eq(rounded.significand),
            half.power.eq(rounded.power),
            self.value.eq(half.value),
        ]
        return m


def integer(m: Module, value: Unpacked) -> Value:
    """A number in units of half the smallest subnormal one."""
    shifted = Signal(FP16.bits + 30)
    m.d.comb += shifted.eq(value.significand << effective(value.exponent))
    return Mux(value.sign, -shifted, shifted)
