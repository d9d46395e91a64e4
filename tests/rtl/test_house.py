"""Units by name, as Verilog and synthesised."""

import gzip
import lzma

import pytest

from tilepress.rtl.synthesis import synthesize
from tilepress.rtl.units import NAMES, unit_of
from tilepress.rtl.verilog import module_name, verilog_of
from tilepress.rtl.yosys import run_yosys

SMALLEST = ("W=1", "L=1", "formats=mxfp4")
SMALL = {
    "deca-pe": SMALLEST,
    "anda-apu": ("lanes=8",),
    "anda-compressor": ("lanes=2", "group=4"),
    "harmonia-pe": ("group=8", "lanes=2"),
    "harmonia-subtractor": ("rows=2", "columns=2"),
    "ifpu": ("lanes=8",),
}
# Inverter of 1, NAND and NOR of 2, NAND of three inputs 3, buffer 2, flip-flop of 7 µm²; 10 ps through a gate.
LIBRARY = """
library (three) {
  time_unit : "1ps";
  capacitive_load_unit (1, ff);
  lu_table_template (grid) {
    variable_1 : input_net_transition; variable_2 : total_output_net_capacitance;
    index_1 ("1, 100"); index_2 ("1, 100");
  }
  CELLS
}
"""
GATE = """
  cell (NAME) {
    area : AREA;
    PINS
    pin (Y) { direction : output; function : "FUNCTION"; TIMINGS }
  }
"""
TIMING = """timing () { related_pin : "PIN"; timing_sense : negative_unate;
  cell_rise (grid) { TEN } cell_fall (grid) { TEN } rise_transition (grid) { TEN } fall_transition (grid) { TEN } }
""".replace("TEN", 'index_1 ("1, 100"); index_2 ("1, 100"); values ("10, 10", "10, 10");')
FLIP_FLOP = """
  cell (FLOP) {
    area : 7;
    ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin (C) { direction : input; clock : true; capacitance : 1; }
    pin (D) { direction : input; capacitance : 1; }
    pin (Q) { direction : output; function : "IQ"; }
  }
"""


def gate(name, area, function, pins):
    inputs = "".join(f"pin ({pin}) {{ direction : input; capacitance : 1; }}\n" for pin in pins)
    timings = "".join(TIMING.replace("PIN", pin) for pin in pins)
    words = {"NAME": name, "AREA": str(area), "PINS": inputs, "FUNCTION": function, "TIMINGS": timings}
    text = GATE
    for word, value in words.items():
        text = text.replace(word, value)
    return text


@pytest.fixture
def liberty(tmp_path):
    """A library in two files, one of them packed."""
    gates = gate("INV", 1, "!A", "A") + gate("NAND", 2, "!(A&B)", "AB") + gate("NOR", 2, "!(A|B)", "AB")
    gates += gate("NAND3", 3, "!(A&B&C)", "ABC") + gate("BUF", 2, "A", "A")
    (tmp_path / "gates.lib.xz").write_bytes(lzma.compress(LIBRARY.replace("CELLS", gates).encode()))
    (tmp_path / "flops.lib").write_text(LIBRARY.replace("CELLS", FLIP_FLOP))
    return [tmp_path / "gates.lib.xz", tmp_path / "flops.lib"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_verilog_is_read_back_and_clean(name, tmp_path):
    unit = unit_of(name, SMALL.get(name, ()))
    text = verilog_of(unit)
    assert text.startswith(f"// {name} {' '.join(f'{key}={value}' for key, value in unit.settings.items())}\n")
    (tmp_path / "unit.v").write_text(text)
    top = module_name(unit)
    log = run_yosys(
        [f"read_verilog {tmp_path}/unit.v", f"hierarchy -check -top {top}", "proc", "flatten", "check -assert"]
    )
    assert "Found and reported 0 problems." in log


def test_a_unit_is_synthesised_with_gates_and_with_cells(liberty):
    unit = unit_of("harmonia-offsets", ("rows=2", "columns=4", "channels=16", "top=2"))
    gates, cells = synthesize(unit), synthesize(unit, liberty)
    assert gates.memory_bits == cells.memory_bits == 16 * 16  # an FP16 number a channel
    assert gates.flip_flops == cells.flip_flops > 2 * (16 + 4)  # the largest two, and their channels
    assert gates.area is gates.delay is cells.levels is None and gates.levels > 10
    assert cells.cells > gates.cells > gates.flip_flops
    assert cells.delay > 100 and cells.delay % 10 == 0  # of gates with 10 ps each
    assert cells.area > 7 * cells.flip_flops + cells.cells - cells.flip_flops


def test_what_is_no_library(tmp_path):
    unit = unit_of("deca-pe", SMALLEST)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        synthesize(unit, [tmp_path / "none.lib"])
    (tmp_path / "broken.lib.gz").write_bytes(gzip.compress(b"library")[:-4])
    with pytest.raises(ValueError, match=r"broken.lib.gz cannot be unpacked"):
        synthesize(unit, [tmp_path / "broken.lib.gz"])


def test_yosys_fails_with_its_own_words():
    with pytest.raises(RuntimeError, match="Yosys failed: No such command: nonsense"):
        run_yosys(["nonsense"])


@pytest.mark.parametrize("name", NAMES)
def test_every_unit_has_defaults_and_says_them(name):
    unit = unit_of(name)
    assert unit_of(name, [f"{key}={value}" for key, value in unit.settings.items()]) == unit


@pytest.mark.parametrize(
    "name, settings, text",
    [
        ("deca", [], "there is no unit 'deca'; there are deca-pe, anda-apu, "),
        ("deca-pe", ["V=8"], "'V=8' sets nothing of deca-pe; it has W, L, formats, sqq_lines, .*: write W=8, say"),
        ("deca-pe", ["W"], "'W' sets nothing of deca-pe"),
        ("deca-pe", ["W=-8"], "W is a whole number, not '-8'"),
        ("deca-pe", ["W=9" + 9 * "0"], "W is a whole number"),
        ("deca-pe", ["W=24"], "a width divides 512"),
    ],
)
def test_settings_that_mean_nothing(name, settings, text):
    with pytest.raises(ValueError, match=text):
        unit_of(name, settings)
