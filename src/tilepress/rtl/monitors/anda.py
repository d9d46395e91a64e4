"""What must hold of Anda's units."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from ..anda.apu import Apu, ApuParameters
from ..anda.compressor import Compressor, CompressorParameters
from ..checking import Monitor
from ..floating import FP16, effective, unit_power, unpack
from ..group_accumulator import STAGES
from ..trees import largest, total


class Groups(Monitor):
    """A processing unit, whatever pauses are between words and whenever weights are loaded."""

    properties = (
        "each group's sum is given once, in the cycle after its last word",
        "a sum is that of the group's words with the weights that waited at its sign word",
        "exponent, scale and marks are those of the group",
        "a total is marked once for each dot product, after the last group's stages",
    )

    def __init__(self, parameters: ApuParameters) -> None:
        super().__init__(Apu(parameters))

    def holds(self, m: Module) -> Mapping[str, Value]:
        unit, group = self.unit, self.unit.accumulator.group
        left, ended, waiting, taken = Signal.like(unit.planes), Signal(), *(self._weights(name) for name in "ab")
        signs, planes, magnitudes = Signal.like(unit.word), Signal.like(unit.planes), self._magnitudes()
        marks = [unit.exponent, unit.first, unit.last]
        kept = [Signal.like(mark) for mark in marks]
        with m.If(unit.load):
            m.d.sync += waiting.eq(Cat(unit.scale, unit.weights))
        begins = unit.valid & (left == 0)
        with m.If(begins):
            m.d.sync += [left.eq(unit.planes), planes.eq(unit.planes), taken.eq(waiting), signs.eq(unit.word)]
            m.d.sync += [register.eq(mark) for register, mark in zip(kept, marks, strict=True)]
            m.d.sync += [magnitude.eq(0) for magnitude in magnitudes]
        with m.Elif(unit.valid):
            m.d.sync += left.eq(left - 1)
            m.d.sync += [
                magnitude.eq(Cat(bit, magnitude)) for bit, magnitude in zip(unit.word, magnitudes, strict=True)
            ]
        m.d.sync += ended.eq(unit.valid & (left == 1))
        scale, weights = taken[: len(unit.scale)], taken[len(unit.scale) :]
        expected = total(
            [
                Mux(sign, -1, 1) * magnitude * weights.word_select(lane, unit.parameters.weight_bits).as_signed()
                for lane, (sign, magnitude) in enumerate(zip(signs, magnitudes, strict=True))
            ]
        )
        exponent, first, last = kept
        same = (group.scale == scale) & (group.first == first) & (group.last == last)
        same &= group.power == unit_power(exponent, planes)
        ends = [ended & last]
        for _ in range(STAGES):
            ends.append(Signal(name=f"end_{len(ends)}"))
            m.d.sync += ends[-1].eq(ends[-2])
        given = unit.accumulator.valid
        values = (given == ended, ~given | (group.sum == expected), ~given | same, unit.done == ends[-1])
        return dict(zip(self.properties, values, strict=True))

    def _weights(self, name: str) -> Signal:
        """A scale and weights."""
        return Signal(len(self.unit.scale) + len(Value.cast(self.unit.weights)), name=f"weights_{name}")

    def _magnitudes(self) -> list[Signal]:
        return [Signal(self.unit.parameters.mantissa, name=f"magnitude_{lane}") for lane in range(len(self.unit.word))]

    def assumed(self, m: Module) -> Value:
        """A group has one plane at least, and the unit's at most."""
        return (self.unit.planes != 0) & (self.unit.planes <= self.unit.parameters.mantissa)

    def reached(self, m: Module) -> Value:
        return self.unit.done


class Rounds(Monitor):
    """A compressor, whenever rounds are offered."""

    properties = (
        "words of a round stand from the cycle after it was taken, one more than planes, without a gap",
        "a round is taken when the words of the one before are out, and not before",
        "the first word has the signs of the group",
        "a later word has the next bit of each aligned significand",
        "the exponent beside every word is the largest of the group",
    )

    def __init__(self, parameters: CompressorParameters) -> None:
        super().__init__(Compressor(parameters))

    def holds(self, m: Module) -> Mapping[str, Value]:
        unit, due, words = self.unit, Signal(5), Signal(5)
        group, takes = Signal.like(Value.cast(unit.values)), unit.valid & unit.ready
        with m.If(takes):
            m.d.sync += [group.eq(unit.values), due.eq(unit.planes), words.eq(1)]
        with m.Elif(due.any()):
            m.d.sync += [due.eq(due - 1), words.eq(words + 1)]
        with m.Else():
            m.d.sync += words.eq(0)
        values = [unpack(group.word_select(index, FP16.width), FP16) for index in range(unit.parameters.group)]
        shared = largest(m, [value.exponent for value in values])
        bits = [
            (value.significand << words >> FP16.bits + 1 + (effective(shared) - effective(value.exponent))[:5])[0]
            for value in values
        ]
        stands, is_first = words.any(), words == 1
        signs, planes = Cat(value.sign for value in values), Cat(bits)
        properties = (
            unit.word_valid == stands,
            unit.ready == ~due.any(),
            ~is_first | (unit.words[0] == signs),
            ~stands | is_first | (unit.words[0] == planes),
            ~stands | (unit.exponents[0] == shared),
        )
        return dict(zip(self.properties, properties, strict=True))

    def assumed(self, m: Module) -> Value:
        """A group has one plane at least, and the unit's at most."""
        return (self.unit.planes != 0) & (self.unit.planes <= self.unit.parameters.mantissa)

    def reached(self, m: Module) -> Value:
        """Two rounds without a pause, and a plane of ones."""
        follows = Signal()
        with m.If(self.unit.valid & self.unit.ready & self.unit.word_valid):
            m.d.sync += follows.eq(1)
        return follows & self.unit.words[0].all() & ~self.unit.ready
