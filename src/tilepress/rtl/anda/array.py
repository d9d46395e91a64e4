"""A small array of Anda's units with its buffers: tokens × neurons, a unit for each dot product.

A token's words, signs and planes of one group after another, are in a buffer of their own, and go to all units of its
row; a neuron's weights and scales are in a buffer of theirs, and go to all units of its column. `start` begins a pass
over `groups` groups of `planes` planes, in which a word goes to each unit in every cycle; a group's weights are loaded
beside the last word of the group before, so that the first ones take a cycle more. `done` is up when `totals` stand.
"""

from dataclasses import dataclass, field

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, ReadPort
from amaranth.lib.wiring import In, Out

from ...simulate.units.halves import EXPONENT_BITS
from ..checks import check_range
from ..floating import FP32
from .apu import Apu, ApuParameters


@dataclass(frozen=True)
class ArrayParameters:
    """`tokens` × `neurons` units, with buffers for `groups` groups."""

    unit: ApuParameters = field(default_factory=ApuParameters)
    tokens: int = 1
    neurons: int = 4
    groups: int = 16

    def __post_init__(self) -> None:
        check_range("tokens", self.tokens, 1, 64)
        check_range("neurons", self.neurons, 1, 64)
        check_range("groups", self.groups, 1, 1024)

    @property
    def words(self) -> int:
        """In a token's buffer."""
        return self.groups * (1 + self.unit.mantissa)

    @property
    def word(self) -> data.StructLayout:
        """A word, and its group's exponent, which counts beside signs only."""
        return data.StructLayout({"bits": self.unit.lanes, "exponent": EXPONENT_BITS})

    @property
    def weights(self) -> data.StructLayout:
        """A group's."""
        return data.StructLayout({"weights": self.unit.lanes * self.unit.weight_bits, "scale": FP32.width})


class Array(wiring.Component):
    """`fill_words` puts a word into a token's buffer, `fill_weights` a group into a neuron's."""

    def __init__(self, parameters: ArrayParameters) -> None:
        self.parameters = parameters
        self.units = [[Apu(parameters.unit) for _ in range(parameters.neurons)] for _ in range(parameters.tokens)]
        fill_words = {"token": range(parameters.tokens), "address": range(parameters.words), "word": parameters.word}
        fill_weights = {
            "neuron": range(parameters.neurons),
            "address": range(parameters.groups),
            "group": parameters.weights,
        }
        super().__init__(
            {
                "fill_words": In(data.StructLayout(fill_words)),
                "fill_words_valid": In(1),
                "fill_weights": In(data.StructLayout(fill_weights)),
                "fill_weights_valid": In(1),
                "start": In(1),
                "groups": In(range(parameters.groups + 1)),
                "planes": In(range(parameters.unit.mantissa + 1)),
                "totals": Out(FP32.width).array(parameters.tokens, parameters.neurons),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m, parameters = Module(), self.parameters
        running = Signal()
        group = Signal(range(parameters.groups))
        step = Signal.like(self.planes)
        address = Signal(range(parameters.words))
        ends_group = Signal()
        is_last = Signal()
        next_group = Signal(range(parameters.groups + 1))
        m.d.comb += [
            ends_group.eq(running & (step == self.planes)),
            is_last.eq(group == self.groups - 1),
            next_group.eq(Mux(running, group + 1, 0)),
            self.done.eq(self.units[0][0].done),
        ]
        with m.If(running):
            m.d.sync += [step.eq(Mux(ends_group, 0, step + 1)), address.eq(address + 1)]
            m.d.sync += group.eq(group + ends_group)
        with m.If(ends_group & is_last):
            m.d.sync += running.eq(0)
        with m.If(self.start):
            m.d.sync += [running.eq(1), group.eq(0), step.eq(0), address.eq(0)]

        words = [self._words(m, token, address) for token in range(parameters.tokens)]
        groups = [self._weights(m, neuron, next_group) for neuron in range(parameters.neurons)]
        for token, row in enumerate(self.units):
            for neuron, unit in enumerate(row):
                m.submodules[f"unit_{token}_{neuron}"] = unit
                word, weights = words[token].data, groups[neuron].data
                m.d.comb += [
                    unit.load.eq(self.start | ends_group),
                    Value.cast(unit.weights).eq(weights.weights),
                    unit.scale.eq(weights.scale),
                    unit.valid.eq(running),
                    unit.word.eq(word.bits),
                    unit.exponent.eq(word.exponent),
                    unit.planes.eq(self.planes),
                    unit.first.eq(group == 0),
                    unit.last.eq(is_last),
                    self.totals[token][neuron].eq(unit.total),
                ]
        return m

    def _words(self, m: Module, token: int, address: Value) -> ReadPort:
        memory = Memory(shape=self.parameters.word, depth=self.parameters.words, init=[])
        fill, valid = self.fill_words, self.fill_words_valid & (self.fill_words.token == token)
        return _buffer(m, f"words_{token}", memory, (valid, fill.address, fill.word), address)

    def _weights(self, m: Module, neuron: int, group: Value) -> ReadPort:
        memory = Memory(shape=self.parameters.weights, depth=self.parameters.groups, init=[])
        fill, valid = self.fill_weights, self.fill_weights_valid & (self.fill_weights.neuron == neuron)
        return _buffer(m, f"weights_{neuron}", memory, (valid, fill.address, fill.group), group)


def _buffer(m: Module, name: str, memory: Memory, fill: tuple[Value, Value, Value], address: Value) -> ReadPort:
    """A memory that is filled, and answers in the cycle in which it is asked."""
    m.submodules[name] = memory
    write, read = memory.write_port(), memory.read_port(domain="comb")
    valid, where, what = fill
    m.d.comb += [write.en.eq(valid), write.addr.eq(where), write.data.eq(what), read.addr.eq(address)]
    return read
