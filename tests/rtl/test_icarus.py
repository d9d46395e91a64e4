"""Verilog of units in Icarus Verilog: cycle by cycle what Amaranth's simulator gives."""

import shutil
import subprocess

import numpy as np
import pytest

from tests.rtl.clocked import clocked
from tilepress.rtl.units import unit_of
from tilepress.rtl.verilog import module_name, verilog_of
from tilepress.rtl.yosys import ports_of

UNITS = {
    "deca-pe": ("W=8", "L=2", "formats=mxfp4", "address_bits=4"),
    "anda-apu": ("lanes=4", "mantissa=3"),
    "anda-compressor": ("lanes=2", "group=2", "mantissa=4"),
    "harmonia-pe": ("group=8", "lanes=2"),
    "harmonia-converter": ("rows=2", "columns=2", "group=4"),
    "harmonia-offsets": ("rows=2", "columns=2", "channels=4", "top=2"),
    "fp-int": (),
    "figna": ("lanes=2", "group=8"),
    "ifpu": ("lanes=4",),
    "fp16-mac": (),
    "int-mac": (),
    "m-ant-mac": ("group=8",),
    "int8-quantiser": ("scale=online", "rows=2", "group=24"),
}
CYCLES = 150
BENCH = """
module bench;
  reg clk = 0, rst = 0;
  reg [{inputs}-1:0] vectors [0:{cycles}-1];
  reg [{inputs}-1:0] in = 0;
  wire [{outputs}-1:0] out;
  integer cycle;
  {name} unit (.clk(clk), .rst(rst){ports});
  initial begin
    $readmemh("vectors.hex", vectors);
    for (cycle = 0; cycle < {cycles}; cycle = cycle + 1) begin
      in = vectors[cycle];
      #1 clk = 1;
      #1 $display("%h", out);
      clk = 0;
      #1;
    end
    $finish;
  end
endmodule
"""

pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs Icarus Verilog")


def bench(name, ports):
    """A module that gives a unit one word for all its inputs a cycle, the first lowest, and prints one of outputs."""
    connections, places = "", {True: 0, False: 0}
    for port, (word, is_input) in ports.items():
        first = places[is_input]
        places[is_input] += len(word)
        connections += f", .{port}({'in' if is_input else 'out'}[{first} +: {len(word)}])"
    return BENCH.format(inputs=places[True], outputs=places[False], cycles=CYCLES, name=name, ports=connections)


def in_icarus(folder, unit, ports, vectors):
    """Outputs after each cycle's edge."""
    (folder / "unit.v").write_text(verilog_of(unit))
    (folder / "bench.v").write_text(bench(module_name(unit), ports))
    (folder / "vectors.hex").write_text("\n".join(f"{vector:x}" for vector in vectors))
    subprocess.run(["iverilog", "-g2012", "-o", "bench", "bench.v", "unit.v"], cwd=folder, check=True)
    done = subprocess.run(["vvp", "-n", "bench"], cwd=folder, check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line]


def in_amaranth(component, ports, vectors):
    """The same."""
    inputs, outputs = (
        {name: word for name, (word, is_input) in ports.items() if is_input is which} for which in (True, False)
    )
    cycles = [split(vector, inputs) for vector in vectors]
    return [joined(seen, outputs) for seen in clocked(component, cycles, outputs, inputs | outputs)]


def joined(values, ports):
    """Values of ports in one word, the first lowest."""
    word, place = 0, 0
    for value, port in zip(values, ports.values(), strict=True):
        word |= (value & (1 << len(port)) - 1) << place
        place += len(port)
    return word


def split(word, ports):
    """A word's value for each port."""
    values = {}
    for name, port in ports.items():
        values[name], word = word & (1 << len(port)) - 1, word >> len(port)
    return values


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "deca-pe" else []) for name in UNITS]
)
def test_cycle_by_cycle(name, tmp_path):
    """Any bits at all inputs. Registers and memories begin with the same values in both."""
    unit = unit_of(name, UNITS[name])
    component = unit.component()
    ports = ports_of(component)
    width = sum(len(word) for word, is_input in ports.values() if is_input)
    random = np.random.default_rng(0)
    vectors = [int.from_bytes(random.bytes(-(-width // 8)), "little") & (1 << width) - 1 for _ in range(CYCLES)]
    expected = in_amaranth(component, ports, vectors)
    assert len(set(expected)) > CYCLES // 10
    assert [int(line, 16) for line in in_icarus(tmp_path, unit, ports, vectors)] == expected
