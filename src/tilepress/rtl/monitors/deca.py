"""What must hold of DECA's element."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Signal, Value

from ..checking import Monitor
from ..deca import Parameters, Pe
from ..deca.loader import Loader
from ..deca.parameters import LDU_ENTRIES, LINE_BITS, LOADERS, ROW_WEIGHTS, ROWS
from ..deca.tile_register import TileRegister


class Pipeline(Monitor):
    """Vector operations between loaders and output registers: whatever memory and core do, and whatever is in the
    control registers."""

    properties = (
        "a stage has the operation that follows the one ahead of it",
        "an operation that was taken is in a stage or written, once",
        "nothing is in the stages, or written, of a loader without a tile",
        "rows are given when they are written, and not twice",
        "a squash leaves no stage with an operation",
    )

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(Pe(parameters))

    def holds(self, m: Module) -> Mapping[str, Value]:
        pe, squashed = self.unit, Signal()
        m.d.sync += squashed.eq(pe.squash)
        in_first, in_second = pe.dequantise.busy | pe.dequantise.valid, pe.expand.valid_out
        of_loaders = zip(*(self._of_loader(index, in_first, in_second) for index in range(LOADERS)), strict=True)
        every = [Cat(bits).all() for bits in of_loaders]
        return dict(zip(self.properties, [*every, ~squashed | ~(in_first | in_second)], strict=True))

    def _of_loader(self, index: int, in_first: Value, in_second: Value) -> tuple[Value, ...]:
        pe, parameters = self.unit, self.unit.parameters
        loader, register, first, second = pe.loaders[index], pe.registers[index], pe.dequantise, pe.expand
        mine_first = in_first & (first.place_out.loader == index)
        mine_second = in_second & (second.place_out.loader == index)
        written, read, taken = register.written, register.read, loader.operation
        follows = (~mine_second | (second.place_out.operation == written)) & (
            ~mine_first | (first.place_out.operation == written + mine_second)
        )
        is_whole = taken <= parameters.operations
        conserved = ~loader.active | (is_whole & (taken == written + mine_first + mine_second))
        empty = loader.active | ~(mine_first | mine_second | written.any() | read.any())
        in_time = (read * ROW_WEIGHTS <= written * parameters.W) & (read < ROWS)
        return follows, conserved, empty, in_time

    def reached(self, m: Module) -> Value:
        """After a squash, a row of each loader."""
        squashed, rows = Signal(), Signal(LOADERS)
        with m.If(self.unit.squash):
            m.d.sync += squashed.eq(1)
        for index, row in enumerate(self.unit.row):
            with m.If(squashed & row.valid & row.ready):
                m.d.sync += rows[index].eq(1)
        return rows.all()


class Requests(Monitor):
    """A loader, whatever memory answers and whenever; control registers change only between tiles."""

    properties = (
        "a request that is not taken is offered again, the same",
        "lines of a tile are requested in order, each once",
        "no line enters that was not requested",
        "a line of another tile, or one that comes in a squash, changes nothing",
    )

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(Loader(parameters))

    def holds(self, m: Module) -> Mapping[str, Value]:
        loader = self.unit
        request, tag = loader.request, loader.line.payload.tag
        payload, offered = Value.cast(request.payload), Signal(len(Value.cast(request.payload)))
        owed, expected = Signal(), Signal(range(2 * LDU_ENTRIES))
        before, unchanged, begins = Signal.like(loader.entered), Signal(), loader.tile.valid & loader.tile.ready
        m.d.sync += [owed.eq(request.valid & ~request.ready), offered.eq(payload), before.eq(loader.entered)]
        m.d.sync += unchanged.eq(
            (loader.squash | (tag.epoch != loader.epoch)) & ~(loader.tile.valid & loader.tile.ready)
        )
        with m.If(request.valid & request.ready):
            m.d.sync += expected.eq(expected + 1)
        with m.If(begins):
            m.d.sync += expected.eq(0)
        values = (
            ~owed | loader.squash | (request.valid & (payload == offered)),
            ~request.valid | (request.payload.tag.line == expected),
            ~(loader.entered >> loader.requested).any(),
            ~unchanged | (loader.entered == before),
        )
        return dict(zip(self.properties, values, strict=True))

    def assumed(self, m: Module) -> Value:
        """A tile has no more lines than its bitmask asks for, so that it is not finished before all are requested."""
        control, before = Value.cast(self.unit.control), Signal(len(Value.cast(self.unit.control)))
        m.d.sync += before.eq(control)
        return (~self.unit.active | (control == before)) & ~(self.unit.finish & self.unit.request.valid)

    def reached(self, m: Module) -> Value:
        """A tile after a squash, of which a second line has entered, with a request that waits."""
        squashed = Signal()
        with m.If(self.unit.squash):
            m.d.sync += squashed.eq(1)
        return squashed & self.unit.entered[1] & self.unit.request.valid & ~self.unit.request.ready


class Rows(Monitor):
    """An output register: rows have the first and the last bit that was written of them."""

    properties = (
        "a row is what was written of it, however long it waits",
        "rows are given in order, each once",
        "a row that is not taken is offered again",
    )

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(TileRegister(parameters))

    def holds(self, m: Module) -> Mapping[str, Value]:
        register, width = self.unit, self.unit.parameters.W
        values, row, expected = Value.cast(register.values), register.row, Signal(range(ROWS))
        firsts, lasts = Signal(ROWS), Signal(ROWS)
        chunk_bits = len(values)
        for index in range(ROWS):
            for bits, bit in ((firsts, index * LINE_BITS), (lasts, (index + 1) * LINE_BITS - 1)):
                with m.If(register.write & (register.operation == bit // chunk_bits)):
                    m.d.sync += bits[index].eq(values[bit % chunk_bits])
        owed = Signal()
        m.d.sync += owed.eq(row.valid & ~row.ready)
        with m.If(row.valid & row.ready):
            m.d.sync += expected.eq(expected + 1)
        with m.If(register.start):
            m.d.sync += expected.eq(0)
        same = (row.payload[0] == firsts.bit_select(expected, 1)) & (row.payload[-1] == lasts.bit_select(expected, 1))
        in_time = (expected + 1) * ROW_WEIGHTS <= register.written * width
        in_order = in_time & (register.read == expected)
        values = (~row.valid | same, ~row.valid | in_order, ~owed | register.start | row.valid)
        return dict(zip(self.properties, values, strict=True))

    def assumed(self, m: Module) -> Value:
        """What `Pipeline` proves: operations come in order, and none after the last."""
        register = self.unit
        is_next = (register.operation == register.written) & (register.written != register.parameters.operations)
        return ~register.write | is_next

    def reached(self, m: Module) -> Value:
        return self.unit.finish
