"""A loader: its load unit (LDU) requests a tile's lines, and its queues hold them until vector operations take them.

Lines are numbered in the order of their requests: bitmask, scales, zero points, codes. One that comes back enters the
queue of its kind, which always has room, if the load unit waits for it; one of a squashed tile is dropped.
"""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.weight import SCALE_BITS
from ...formats.zero_points import ZERO_POINT_BITS
from ...hardware.machine import TILE_WEIGHTS
from ..trees import count_ones
from .parameters import LDU_ENTRIES, LINE_BITS, NEURONS, SCALES, VALUE_BITS, Control, Parameters, Scale, ScaleQueue

POSITION_BITS = (LINE_BITS - 1 + TILE_WEIGHTS * VALUE_BITS).bit_length()


class Loader(wiring.Component):
    """`tile` → `request` → `line` → what the next vOp needs: `window`, its codes, the first lowest; `bits` of
    the bitmask, of which `count` are set; its number, `operation`. `valid`: all of that has come; `waiting`: not yet.
    `take`: the vOp enters the pipeline. `scales`: the scale factor queue, whose second half is for the tile's second
    half if it has `two_groups`. `finish`: the core reads the tile's last row in this cycle."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "control": In(Control),
                "squash": In(1),
                "tile": In(stream.Signature(parameters.tile)),
                "request": Out(stream.Signature(parameters.request)),
                "line": In(stream.Signature(parameters.line, always_ready=True)),
                "valid": Out(1),
                "waiting": Out(1),
                "operation": Out(range(parameters.operations + 1)),
                "bits": Out(parameters.W),
                "count": Out(range(parameters.W + 1)),
                "window": Out(parameters.window_bits),
                "scales": Out(ScaleQueue),
                "two_groups": Out(1),
                "take": In(1),
                "finish": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.current = Signal(self.parameters.tile)
        self.active = Signal()
        self.epoch = Signal(self.parameters.epoch_bits)
        self.requested = Signal(range(LDU_ENTRIES + 1))
        self.entered = Signal(LDU_ENTRIES)
        self.position = Signal(POSITION_BITS)  # of the next code, in bits from the tile's first line of codes
        self.window_end = Signal(POSITION_BITS)
        self._number_lines(m)
        self._begin(m)
        self._request(m)
        self._receive(m)
        self._count(m)
        return m

    def _number_lines(self, m: Module) -> None:
        """The first line of each kind, and the end of all."""
        control, tile = self.control, self.current
        self.scales_at, self.zeros_at, self.codes_at, self.end = (Signal(5, name=name) for name in _STARTS)
        crosses = Signal()  # the second group's scales begin a line
        with m.Switch(control.scale):
            for name in self.parameters.scales:
                with m.Case(SCALES[name]):
                    m.d.comb += crosses.eq(tile.two_groups & (tile.scale_part == _parts(SCALE_BITS[name]) - 1))
        m.d.comb += [
            self.scales_at.eq(control.sparse),
            self.zeros_at.eq(self.scales_at + Mux(control.scale == Scale.NONE, 0, 1 + crosses)),
            self.codes_at.eq(self.zeros_at + control.zero_points),
            self.end.eq(self.codes_at + tile.code_lines),
        ]

    def _begin(self, m: Module) -> None:
        """A tile is taken in the cycle before it is worked at: that of its predecessor's last row, or of a squash."""
        m.d.comb += self.tile.ready.eq(~self.active | self.finish | self.squash)
        with m.If(self.tile.ready):
            m.d.sync += self.active.eq(self.tile.valid)
        with m.If(self.tile.ready & self.tile.valid):
            m.d.sync += [
                self.current.eq(self.tile.payload),
                self.epoch.eq(self.epoch + 1),
                self.requested.eq(0),
                self.entered.eq(0),
                self.position.eq(self.tile.payload.first_bit),
                self.operation.eq(0),
            ]

    def _request(self, m: Module) -> None:
        line, tile = self.requested, self.current
        m.d.comb += [
            self.request.valid.eq(self.active & (line < self.end) & ~self.squash),
            self.request.payload.tag.line.eq(line),
            self.request.payload.tag.epoch.eq(self.epoch),
        ]
        address = self.request.payload.address
        with m.If(line < self.scales_at):
            m.d.comb += address.eq(tile.mask)
        with m.Elif(line < self.zeros_at):
            m.d.comb += address.eq(tile.scales + (line - self.scales_at)[:1])
        with m.Elif(line < self.codes_at):
            m.d.comb += address.eq(tile.zeros)
        with m.Else():
            m.d.comb += address.eq(tile.codes + (line - self.codes_at)[:5])
        with m.If(self.request.valid & self.request.ready):
            m.d.sync += line.eq(line + 1)

    def _receive(self, m: Module) -> None:
        """The search of the load unit, and the queue of the line's kind. Nothing enters while a tile may be taken: a
        line that its predecessor did not need would pass for one of its own."""
        number, tag = self.line.payload.tag.line, self.line.payload.tag
        awaited = Signal()
        enters = Signal()
        place = Signal(5)  # its place among lines of codes
        m.d.comb += [
            awaited.eq(self.active & (tag.epoch == self.epoch) & (number < self.requested)),
            enters.eq(self.line.valid & awaited & ~self.entered.bit_select(number, 1) & ~self.tile.ready),
            place.eq(number - self.codes_at),
        ]
        with m.If(enters):
            m.d.sync += self.entered.bit_select(number, 1).eq(1)
        self._bitmask(m, enters & (number < self.scales_at))
        self._scale_factors(m, enters, number)
        self._codes(m, enters & (number >= self.codes_at), place)

    def _bitmask(self, m: Module, enters: Any) -> None:
        """The queue shows the part of the next vOp in its lowest bits."""
        width = self.parameters.W
        queue = Signal(LINE_BITS)
        m.d.comb += self.bits.eq(Mux(self.control.sparse, queue[:width], -1))
        with m.If(enters):
            m.d.sync += queue.eq(self.line.payload.data)
        with m.Elif(self.take):
            m.d.sync += queue.eq(queue >> width)

    def _scale_factors(self, m: Module, enters: Any, number: Any) -> None:
        """Entry n: the scale of neuron n, or its lower half. Entry 16 + n: its second group's, its upper half, or its
        zero point, of which a tile has one at most."""
        tile, words = self.current, self.line.payload.data
        queue = Signal(ScaleQueue)
        m.d.comb += [self.scales.eq(queue), self.two_groups.eq(tile.two_groups)]
        is_scale = enters & (number >= self.scales_at) & (number < self.zeros_at)
        second_line = number != self.scales_at
        with m.Switch(Mux(is_scale, self.control.scale, Scale.NONE)):
            for name in self.parameters.scales:
                with m.Case(SCALES[name]):
                    bits = SCALE_BITS[name]
                    if bits == 2 * VALUE_BITS:
                        for n, word in enumerate(_cut(words, bits)):
                            m.d.sync += Cat(queue[n], queue[NEURONS + n]).eq(word)
                        continue
                    for group in range(2):
                        part = (tile.scale_part + group)[:3]
                        here = second_line == (part >= _parts(bits))
                        with m.If(here & (tile.two_groups if group else 1)):
                            m.d.sync += _entries(queue, group).eq(_part(words, part, bits))
        if self.parameters.has_zero_points:
            with m.If(enters & (number >= self.zeros_at) & (number < self.codes_at)):
                m.d.sync += _entries(queue, 1).eq(_part(words, tile.zero_part, ZERO_POINT_BITS))

    def _codes(self, m: Module, enters: Any, place: Any) -> None:
        """The queue of codes (SQQ): line n lies in bank n mod banks, so that the lines of a window, which follow each
        other, are read in one cycle with one port for each bank."""
        banks, depth = self.parameters.banks, self.parameters.sqq_lines // self.parameters.banks
        bank_bits, first = ceil_log2(banks), self.position >> ceil_log2(LINE_BITS)
        lines = data.ArrayLayout(LINE_BITS, banks)
        by_bank = Signal(lines)
        for bank in range(banks):
            memory = Memory(shape=LINE_BITS, depth=depth, init=[])
            m.submodules[f"bank_{bank}"] = memory
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(enters & (place[:bank_bits] == bank)),
                write.addr.eq(place >> bank_bits),
                write.data.eq(self.line.payload.data),
                read.addr.eq((first >> bank_bits) + (first[:bank_bits] > bank)),
                by_bank[bank].eq(read.data),
            ]
        window = Signal(LINE_BITS * banks)
        m.d.comb += window.eq(Cat(by_bank[(first + n)[:bank_bits]] for n in range(banks)))
        for bit in reversed(range(ceil_log2(LINE_BITS))):  # far shifts first, so that the near ones have few bits
            width = self.parameters.window_bits + (1 << bit) - 1
            shifted = Signal(width, name=f"shifted_{1 << bit}") if bit else self.window
            m.d.comb += shifted.eq(Mux(self.position[bit], window[1 << bit :], window))
            window = shifted

    def _count(self, m: Module) -> None:
        """POPCNT, the end of the window, and whether all lines up to it have entered."""
        length = Signal(range(self.parameters.window_bits + 1))
        needed = Signal(range(LDU_ENTRIES + 1))
        has_operation = Signal()
        m.d.comb += self.count.eq(count_ones(self.bits))
        with m.Switch(self.control.code_bits):
            for bits in self.parameters.code_bits:
                with m.Case(bits):
                    m.d.comb += length.eq(self.count * bits)
        end_line = (self.window_end + (LINE_BITS - 1)) >> ceil_log2(LINE_BITS)
        code_lines = Mux(self.count == 0, 0, end_line)
        missing = ((1 << needed) - 1)[:LDU_ENTRIES] & ~self.entered
        m.d.comb += [
            self.window_end.eq(self.position + length),
            needed.eq(self.codes_at + code_lines),
            has_operation.eq(self.active & (self.operation != self.parameters.operations) & ~self.squash),
            self.valid.eq(has_operation & (missing == 0)),
            self.waiting.eq(has_operation & (missing != 0)),
        ]
        with m.If(self.take):
            m.d.sync += [self.position.eq(self.window_end), self.operation.eq(self.operation + 1)]


_STARTS = ("scales_at", "zeros_at", "codes_at", "end")


def _parts(bits: int) -> int:
    """Groups of sixteen neurons in a line, `bits` each."""
    return LINE_BITS // (NEURONS * bits)


def _cut(words: Any, bits: int) -> list[Any]:
    return [words[start : start + bits] for start in range(0, len(words), bits)]


def _part(words: Any, part: Any, bits: int) -> Any:
    """Sixteen entries: those of a `part` of a line."""
    chosen = words.word_select(part[: ceil_log2(_parts(bits))], NEURONS * bits)
    return Cat(Cat(value, Const(0, VALUE_BITS - bits)) for value in _cut(chosen, bits))


def _entries(queue: Any, group: int) -> Any:
    return Cat(queue[NEURONS * group + n] for n in range(NEURONS))
