"""What must hold of Harmonia's converter."""

from collections.abc import Mapping

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value

from ..checking import Monitor
from ..floating import FP16, unpack
from ..harmonia.converter import Converter, ConverterParameters, Path
from ..trees import largest

BLOCKS = 2  # bits of a block's number; at most three are in a converter


class Blocks(Monitor):
    """A converter beside a temporary memory, whenever columns come: the memory holds, in the place of values, which
    block and place they are of."""

    properties = (
        "a column that is read is the one that was written of that block and place",
        "columns of a block are converted in its path's order, each once",
        "no block is begun before the one before it has come",
        "an exponent is the largest of its group",
    )

    def __init__(self, parameters: ConverterParameters) -> None:
        super().__init__(Converter(parameters))

    def holds(self, m: Module) -> Mapping[str, Value]:
        unit, parameters = self.unit, self.unit.parameters
        coming, place = Signal(BLOCKS), Signal(range(parameters.places))
        going, step = Signal(BLOCKS), Signal(range(parameters.places))
        accepted, tag = unit.valid & unit.ready, Signal(BLOCKS + len(place))
        memory = Array(Signal.like(tag, name=f"tag_{index}") for index in range(2 * parameters.places))
        settings = Array(Signal.like(Value.cast(unit.setting), name=f"setting_{n}") for n in range(1 << BLOCKS))
        exponents = Array(Signal(parameters.exponents.size, name=f"largest_{n}") for n in range(4))
        m.d.sync += tag.eq(memory[unit.read_address])
        ends = place == _steps(parameters, unit.setting) - 1
        with m.If(accepted):
            m.d.sync += [memory[unit.write_address].eq(Cat(place, coming)), settings[coming].eq(unit.setting)]
            m.d.sync += [place.eq(Mux(ends, 0, place + 1)), coming.eq(coming + ends)]
            m.d.sync += exponents[coming].eq(_larger(m, unit, exponents[coming], place))
        setting = unit.setting.shape()(settings[going])
        expected = _place(parameters, setting, step)
        with m.If(unit.converted_valid):
            last = step == _steps(parameters, setting) - 1
            m.d.sync += [step.eq(Mux(last, 0, step + 1)), going.eq(going + last)]
        groups = [
            exponents[going].word_select(Mux(setting.path == Path.TOKENS, expected % parameters.columns, row), 5)
            for row in range(parameters.rows)
        ]
        right = Cat(one.exponent == group for one, group in zip(unit.converted, groups, strict=True)).all()
        idle = ~unit.converted_valid
        values = (
            idle | (tag == Cat(expected, going)),
            idle | (unit.place == expected),
            idle | (going != coming),
            idle | right,
        )
        self._place, self._settings, self._coming = place, settings, coming
        return dict(zip(self.properties, values, strict=True))

    def assumed(self, m: Module) -> Value:
        """A block has one setting, of one pass at least, and no more than there are."""
        passes = self.unit.setting.passes
        same = Value.cast(self.unit.setting) == self._settings[self._coming]
        return (passes != 0) & (passes <= self.unit.parameters.passes) & ((self._place == 0) | same)

    def reached(self, m: Module) -> Value:
        """A column of the third block, which uses the first one's half of the memory again."""
        return self.unit.converted_valid & (self._coming == 3)


def _steps(parameters: ConverterParameters, setting: Value) -> Value:
    """Of a block."""
    return Mux(setting.path == Path.TOKENS, setting.passes * parameters.columns, parameters.group)


def _place(parameters: ConverterParameters, setting: Value, step: Value) -> Value:
    """The place that a block's `step` converts: all passes of a column after another, or as they came."""
    by_tokens = Mux(setting.passes == 1, step, (step % 2) * parameters.columns + step // 2)
    return Mux(setting.path == Path.TOKENS, by_tokens, step)[: (parameters.places - 1).bit_length()]


def _larger(m: Module, unit: Converter, so_far: Value, place: Value) -> Value:
    """Exponents of a block's groups with the column at `place`."""
    exponents = [unpack(value, FP16).exponent for value in unit.values]
    by_tokens, columns = unit.setting.path == Path.TOKENS, unit.parameters.columns
    whole, words = largest(m, exponents), []
    for index in range(columns):
        word = so_far.word_select(index, 5)
        mine = Mux(by_tokens, whole, exponents[index] if index < len(exponents) else 0)
        is_new = Mux(by_tokens, place < columns, place == 0)
        here = ~by_tokens | (place % columns == index)
        words.append(Mux(here & (is_new | (mine > word)), mine, word))
    return Cat(words)
