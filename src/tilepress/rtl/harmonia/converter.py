"""Harmonia's real-time converter: what `simulate.units.harmonia_converter` models, cycle by cycle.

A block's results come while `ready`, a column of the array a cycle, and are found again in the temporary memory when
their exponents are known: the converter says at which `write_address` the memory has to keep `values`, and at which
`read_address` it wants `stored` in the same cycle. Addresses are places in a block, in two halves that blocks take in
turn. The eight converted values of `place` stand while `converted_valid` is up.

| path | a block | whose exponents | order of converted values |
|---|---|---|---|
| channels | one value of each row in turn, `group` times | a row's, a register each | as they came |
| tokens | `passes` over the columns | a column's: a tree, a register a column | a group after another |

A block's `setting` stands beside all of its values. A group with a value that is infinite or not a number has exponent
31, which no other group has.
"""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ...formats.kv import WIDEST
from ...simulate.units.halves import EXPONENT_BITS, SIGNIFICAND_BITS
from ...simulate.units.harmonia_converter import COLUMNS, GROUP, ROWS
from ..checks import check_range
from ..floating import FP16, effective, unpack
from ..trees import largest


class Path(enum.Enum, shape=1):  # type: ignore[call-arg]
    """Which values share an exponent."""

    CHANNELS = 0  # of one token
    TOKENS = 1  # of one channel


@dataclass(frozen=True)
class ConverterParameters:
    """An array of `rows` × `columns`, groups of `group` values with at most `mantissa` bits of magnitude."""

    rows: int = ROWS
    columns: int = COLUMNS
    group: int = GROUP
    mantissa: int = WIDEST

    def __post_init__(self) -> None:
        check_range("rows", self.rows, 2, 64)
        check_range("columns", self.columns, self.rows, 64)
        check_range("group", self.group, self.rows, 128)
        check_range("mantissa", self.mantissa, 1, SIGNIFICAND_BITS)
        if self.group % self.rows:
            raise ValueError(f"a group of {self.group} values is no multiple of {self.rows} rows")

    @property
    def passes(self) -> int:
        """Over the array's columns, that groups of tokens take."""
        return self.group // self.rows

    @property
    def places(self) -> int:
        """Steps of the largest block."""
        return max(self.group, self.passes * self.columns)

    @property
    def setting(self) -> data.StructLayout:
        """Of a block; `passes` counts in the path of tokens only."""
        return data.StructLayout(
            {"path": Path, "passes": range(self.passes + 1), "mantissa": range(self.mantissa + 1)},
        )

    @property
    def values(self) -> data.ArrayLayout:
        """What comes in a cycle."""
        return data.ArrayLayout(FP16.width, self.rows)

    @property
    def exponents(self) -> data.ArrayLayout:
        return data.ArrayLayout(EXPONENT_BITS, self.columns)


class Steps:
    """Where in a block a stage is: a column of a pass. Blocks use the memory's halves in turn."""

    def __init__(self, parameters: ConverterParameters, setting: data.View) -> None:
        self._parameters = parameters
        self.column = Signal(range(max(parameters.group, parameters.columns)))
        self.pass_ = Signal(range(parameters.passes))
        self._half = Signal()
        by_tokens = setting.path == Path.TOKENS
        self.is_last_column = self.column == Mux(by_tokens, parameters.columns, parameters.group) - 1
        self.is_last_pass = ~by_tokens | (self.pass_ == setting.passes - 1)
        self.is_last = self.is_last_column & self.is_last_pass
        self.place = self.pass_ * parameters.columns + self.column
        self.address = self._half * parameters.places + self.place

    def by_columns(self, m: Module) -> None:
        """To the next column; from a pass's last one to the next pass."""
        m.d.sync += [
            self.column.eq(Mux(self.is_last_column, 0, self.column + 1)),
            self._half.eq(self._half ^ self.is_last),
        ]
        with m.If(self.is_last_column):
            m.d.sync += self.pass_.eq(Mux(self.is_last_pass, 0, self.pass_ + 1))

    def by_passes(self, m: Module) -> None:
        """To the same column's next pass; from its last one to the next column."""
        m.d.sync += [self.pass_.eq(Mux(self.is_last_pass, 0, self.pass_ + 1)), self._half.eq(self._half ^ self.is_last)]
        with m.If(self.is_last_pass):
            m.d.sync += self.column.eq(Mux(self.is_last_column, 0, self.column + 1))


class Finder(wiring.Component):
    """The largest exponents of a block's groups. `found` until they are taken: no block comes in meanwhile."""

    def __init__(self, parameters: ConverterParameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "setting": In(parameters.setting),
                "valid": In(1),
                "ready": Out(1),
                "values": In(parameters.values),
                "address": Out(range(2 * parameters.places)),
                "found": Out(1),
                "taken": In(1),
                "exponents": Out(parameters.exponents),
                "of_block": Out(parameters.setting),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m, steps = Module(), Steps(self.parameters, self.setting)
        accepted = Signal()
        is_waiting = Signal()
        kept = Signal.like(self.exponents)
        setting = Signal.like(self.setting)
        m.d.comb += [
            self.ready.eq(~is_waiting),
            accepted.eq(self.valid & self.ready),
            self.address.eq(steps.address),
            self.found.eq(is_waiting | (accepted & steps.is_last)),
            self.exponents.eq(kept),
            self.of_block.eq(setting),
        ]
        m.d.sync += [is_waiting.eq(self.found & ~self.taken), kept.eq(self.exponents), setting.eq(self.of_block)]
        with m.If(accepted):
            m.d.comb += self.of_block.eq(self.setting)
            steps.by_columns(m)
            self._compare(m, steps, kept)
        return m

    def _compare(self, m: Module, steps: Steps, kept: data.View) -> None:
        """A register a row takes the larger of itself and its row's, or a column's the larger of itself and all."""
        exponents = [unpack(value, FP16).exponent for value in self.values]
        of_column = largest(m, exponents)
        for index, register in enumerate(kept):
            by_tokens = self.setting.path == Path.TOKENS
            mine = Mux(by_tokens, of_column, exponents[index] if index < len(exponents) else 0)
            is_new = Mux(by_tokens, steps.pass_, steps.column) == 0
            is_larger = is_new | (mine > register)
            with m.If(is_larger & (~by_tokens | (steps.column == index))):
                m.d.comb += self.exponents[index].eq(mine)


class Aligner(wiring.Component):
    """Shifts a block's significands to the right by how far their exponents lie below, and cuts them to size."""

    def __init__(self, parameters: ConverterParameters) -> None:
        self.parameters = parameters
        converted = data.StructLayout({"magnitude": parameters.mantissa, "sign": 1, "exponent": EXPONENT_BITS})
        super().__init__(
            {
                "found": In(1),
                "taken": Out(1),
                "exponents": In(parameters.exponents),
                "of_block": In(parameters.setting),
                "address": Out(range(2 * parameters.places)),
                "stored": In(parameters.values),
                "converted_valid": Out(1),
                "place": Out(range(parameters.places)),
                "converted": Out(data.ArrayLayout(converted, parameters.rows)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        is_busy = Signal()
        exponents = Signal.like(self.exponents)
        setting = Signal.like(self.of_block)
        steps = Steps(self.parameters, setting)
        m.d.comb += [self.address.eq(steps.address), self.taken.eq(self.found & (~is_busy | steps.is_last))]
        m.d.sync += [self.converted_valid.eq(is_busy), self.place.eq(steps.place)]
        with m.If(is_busy):
            steps.by_passes(m)
            self._align(m, steps, exponents, setting)
        with m.If(self.taken):
            m.d.sync += [is_busy.eq(1), exponents.eq(self.exponents), setting.eq(self.of_block)]
        with m.Elif(steps.is_last):
            m.d.sync += is_busy.eq(0)
        return m

    def _align(self, m: Module, steps: Steps, exponents: data.View, setting: data.View) -> None:
        of_column = Signal(EXPONENT_BITS)
        m.d.comb += of_column.eq(exponents[steps.column])
        for index, (pattern, converted) in enumerate(zip(self.stored, self.converted, strict=True)):
            value = unpack(pattern, FP16)
            shared = Signal(EXPONENT_BITS)
            m.d.comb += shared.eq(Mux(setting.path == Path.TOKENS, of_column, exponents[index]))
            distance = (effective(shared) - effective(value.exponent))[:EXPONENT_BITS]
            places = distance + (SIGNIFICAND_BITS - setting.mantissa)[:EXPONENT_BITS]
            m.d.sync += converted.magnitude.eq(value.significand >> places)
            m.d.sync += [converted.sign.eq(value.sign), converted.exponent.eq(shared)]


class Converter(wiring.Component):
    """One converter: exponents of a block are found while the block before is aligned."""

    def __init__(self, parameters: ConverterParameters) -> None:
        self.parameters = parameters
        self._finder, self._aligner = Finder(parameters), Aligner(parameters)
        finder, aligner = self._finder.signature.members, self._aligner.signature.members
        super().__init__(
            {
                **{name: finder[name] for name in ("setting", "valid", "ready", "values")},
                "write_address": finder["address"],
                "read_address": aligner["address"],
                **{name: aligner[name] for name in ("stored", "converted_valid", "place", "converted")},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.finder, m.submodules.aligner = finder, aligner = self._finder, self._aligner
        m.d.comb += [
            finder.setting.eq(self.setting),
            finder.valid.eq(self.valid),
            finder.values.eq(self.values),
            finder.taken.eq(aligner.taken),
            self.ready.eq(finder.ready),
            self.write_address.eq(finder.address),
            aligner.found.eq(finder.found),
            aligner.exponents.eq(finder.exponents),
            aligner.of_block.eq(finder.of_block),
            aligner.stored.eq(self.stored),
            self.read_address.eq(aligner.address),
            self.converted_valid.eq(aligner.converted_valid),
            self.place.eq(aligner.place),
            self.converted.eq(aligner.converted),
        ]
        return m
