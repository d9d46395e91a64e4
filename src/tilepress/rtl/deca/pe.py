"""DECA's processing element (section 6.1): two loaders and two output registers around three stages that they share.

What `simulate.units.deca_pe` models, in the same cycles. The core writes control registers and tables while no tile is
in the element. Tiles go to the loaders in turn, beginning with the first after a reset or a squash, and each loader
takes its next one in the cycle in which the core reads the last row of the one before.

A squash drops everything in the element, in one cycle: no row is given in it, and tiles may be called again in it. It
is the one thing that withdraws a `valid` before it was answered.
"""

from typing import Any

from amaranth import Array, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .dequantise import Dequantise
from .expand import Expand
from .loader import Loader
from .parameters import LINE_BITS, LOADERS, Control, Parameters
from .scale import Scaling
from .tile_register import TileRegister


class Pe(wiring.Component):
    """`control`: the control registers. `write`: of tables. For each loader: `tile`, its metadata; `request`, `line`:
    to and from memory; `row`: 32 values of the decompressed tile. `starved`: a vOp could enter, but its input has not
    come; `bubble`: the first stage is busy with one for more than a cycle."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        super().__init__(
            {
                "control": In(Control),
                "write": In(stream.Signature(parameters.write, always_ready=True)),
                "squash": In(1),
                "tile": In(stream.Signature(parameters.tile)).array(LOADERS),
                "request": Out(stream.Signature(parameters.request)).array(LOADERS),
                "line": In(stream.Signature(parameters.line, always_ready=True)).array(LOADERS),
                "row": Out(stream.Signature(LINE_BITS)).array(LOADERS),
                "starved": Out(1),
                "bubble": Out(1),
            }
        )
        self.loaders = [Loader(parameters) for _ in range(LOADERS)]
        self.dequantise, self.expand, self.scaling = Dequantise(parameters), Expand(parameters), Scaling(parameters)
        self.registers = [TileRegister(parameters) for _ in range(LOADERS)]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for index, loader in enumerate(self.loaders):
            self._load(m, index, loader)
        self._dequantise_and_expand(m)
        self._scale(m)
        return m

    def _load(self, m: Module, index: int, loader: Loader) -> None:
        m.submodules[f"loader_{index}"] = loader
        for inner, outer in ((loader.tile, self.tile), (loader.line, self.line)):
            wiring.connect(m, wiring.flipped(outer[index]), inner)
        wiring.connect(m, loader.request, wiring.flipped(self.request[index]))
        m.d.comb += [loader.control.eq(self.control), loader.squash.eq(self.squash)]

    def _dequantise_and_expand(self, m: Module) -> None:
        """vOps of a tile after another, from the loaders in turn."""
        m.submodules.dequantise, m.submodules.expand = dequantise, expand = self.dequantise, self.expand
        turn = Signal()

        def chosen(name: str) -> Any:
            return Array(getattr(loader, name) for loader in self.loaders)[turn]

        enter = dequantise.enter
        m.d.comb += [
            enter.eq(chosen("valid") & dequantise.free),
            dequantise.control.eq(self.control),
            dequantise.write.valid.eq(self.write.valid),
            dequantise.write.payload.eq(self.write.payload),
            dequantise.place.loader.eq(turn),
            dequantise.place.operation.eq(chosen("operation")),
            *(getattr(dequantise, name).eq(chosen(name)) for name in ("window", "count", "bits")),
            *(loader.take.eq(enter & (turn == index)) for index, loader in enumerate(self.loaders)),
            *(part.squash.eq(self.squash) for part in (dequantise, expand)),
            expand.valid.eq(dequantise.valid),
            expand.values.eq(dequantise.values),
            expand.bits.eq(dequantise.bits_out),
            expand.place.eq(dequantise.place_out),
            self.bubble.eq(~dequantise.free & ~self.squash),
            self.starved.eq(dequantise.free & chosen("waiting")),
        ]
        with m.If(self.squash):
            m.d.sync += turn.eq(0)
        with m.Elif(enter & (chosen("operation") == self.parameters.operations - 1)):
            m.d.sync += turn.eq(~turn)

    def _scale(self, m: Module) -> None:
        m.submodules.scaling = scaling = self.scaling
        expand, loaders = self.expand, self.loaders
        owner = expand.place_out.loader
        m.d.comb += [
            scaling.control.eq(self.control),
            scaling.operation.eq(expand.place_out.operation),
            scaling.queue.eq(Array(loader.scales.as_value() for loader in loaders)[owner]),
            scaling.two_groups.eq(Array(loader.two_groups for loader in loaders)[owner]),
            scaling.bits.eq(expand.bits_out),
            scaling.values.eq(expand.values_out),
        ]
        for index, (loader, register) in enumerate(zip(loaders, self.registers, strict=True)):
            m.submodules[f"tile_register_{index}"] = register
            m.d.comb += [
                register.start.eq(self.squash),
                register.write.eq(expand.valid_out & (owner == index)),
                register.operation.eq(expand.place_out.operation),
                register.values.eq(scaling.results),
                loader.finish.eq(register.finish),
            ]
            wiring.connect(m, register.row, wiring.flipped(self.row[index]))
