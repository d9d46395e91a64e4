"""The tables: `L` of 256 bf16 values, each of four sub-tables with 64 values and a read port of its own (section 6.1).

A code of eight bits asks all sub-tables of one table and takes the value of one; of seven, two; of six and fewer, one.
So code n of a cycle goes to sub-table 4n, 2n or n, counted through all tables. Tables for narrow codes are filled with
their values several times, as `simulate.units.deca_arithmetic.fill_tables` gives them.
"""

from typing import Any

from amaranth import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...roofsurface.decompressors import SUB_TABLES, TABLE_ENTRIES, table_lookups
from .parameters import VALUE_BITS, Parameters

SUB_ENTRIES = TABLE_ENTRIES // SUB_TABLES
SUB_BITS = ceil_log2(SUB_ENTRIES)


class LutArray(wiring.Component):
    """`values` of as many `codes` as pass at once; a `write` goes into all tables."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.width = parameters.table_bits[-1]
        self.ports = max(map(parameters.lookups, parameters.table_bits))
        super().__init__(
            {
                "code_bits": In(5),
                "write": In(stream.Signature(parameters.write, always_ready=True)),
                "codes": In(data.ArrayLayout(self.width, self.ports)),
                "values": Out(data.ArrayLayout(VALUE_BITS, self.ports)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        reads = [self._sub_table(m, index) for index in range(SUB_TABLES * self.parameters.L)]
        with m.Switch(self.code_bits):
            for bits in self.parameters.table_bits:
                with m.Case(bits):
                    self._wire(m, reads, bits)
        return m

    def _sub_table(self, m: Module, index: int) -> Any:
        """A sub-table's read port."""
        memory = Memory(shape=VALUE_BITS, depth=SUB_ENTRIES, init=[])
        m.submodules[f"table_{index // SUB_TABLES}_{index % SUB_TABLES}"] = memory
        write = memory.write_port()
        entry = self.write.payload.entry
        m.d.comb += [
            write.en.eq(self.write.valid & (entry >> SUB_BITS == index % SUB_TABLES)),
            write.addr.eq(entry),
            write.data.eq(self.write.payload.value),
        ]
        return memory.read_port(domain="comb")

    def _wire(self, m: Module, reads: list[Any], bits: int) -> None:
        """As codes of `bits` want it."""
        parts = SUB_TABLES // table_lookups(bits)
        for n in range(self.parameters.lookups(bits)):
            code, ports = self.codes[n][:bits], reads[parts * n : parts * (n + 1)]
            for port in ports:
                m.d.comb += port.addr.eq(code[:SUB_BITS])
            m.d.comb += self.values[n].eq(Cat(port.data for port in ports).word_select(code[SUB_BITS:], VALUE_BITS))
