"""Which cells registers become."""

import pytest

from tests.rtl.energy.library import CLOCK_GATE, FLOP, GATES, library_text
from tilepress.rtl.state_cells import StateCells, state_cells
from tilepress.rtl.synthesis import Options, synthesize
from tilepress.rtl.units import unit_of

UNIT = unit_of("harmonia-offsets", ("rows=2", "columns=4", "channels=16", "top=2"))


def named(cell, name, **changes):
    text = cell.replace("cell (FLOP)", f"cell ({name})").replace("cell (CKGATE)", f"cell ({name})")
    for old, new in changes.values():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "cells, unused, clock_gate",
    [
        (GATES, (), None),
        (GATES + FLOP, (), None),
        (named(FLOP, "LARGE", area=("area : 7", "area : 8")) + FLOP + CLOCK_GATE, ("LARGE",), "CKGATE"),
        (CLOCK_GATE + named(CLOCK_GATE, "LESS", area=("area : 1", "area : 0.5")), (), "LESS"),
        (named(FLOP, "FALLING", area=("area : 7", "area : 1"), clock=('on : "C"', 'on : "!C"')) + FLOP, (), None),
        (
            named(FLOP, "CLEARED", area=("area : 7", "area : 9"), clear=("next_state", 'clear : "R"; next_state')),
            (),
            None,
        ),
        (named(CLOCK_GATE, "LOW", kind=("latch_posedge", "latch_negedge")), (), None),
    ],
)
def test_the_smallest_flip_flop_and_clock_gate(cells, unused, clock_gate):
    found = state_cells([library_text(cells)])
    assert (found.unused, found.clock_gate and found.clock_gate[0]) == (unused, clock_gate)


@pytest.mark.parametrize(
    "cells",
    [
        FLOP + named(FLOP, "X;!touch", area=("area : 7", "area : 8")),
        named(CLOCK_GATE, "-liberty"),
        CLOCK_GATE.replace("pin (EN)", "pin (E;N)"),
    ],
)
def test_names_that_are_more_than_a_word_of_a_command(cells):
    with pytest.raises(ValueError, match=r"a cell or pin is called '(X;!touch|-liberty|E;N)'; names have letters"):
        state_cells([library_text(cells)])


def test_pins_of_a_clock_gate():
    _, pins = state_cells([library_text(CLOCK_GATE)]).clock_gate
    assert (pins.clock, pins.output, pins.enable, pins.test) == ("C", "G", "EN", "TE")
    assert state_cells([]) == StateCells()


def test_a_unit_with_gated_clocks_has_no_other_registers(tmp_path):
    """It needs no gate in front of registers to keep them, and the smaller of two flip-flops is taken."""
    (tmp_path / "all.lib").write_text(
        library_text(GATES + named(FLOP, "TINY", area=("area : 7", "area : 5")) + FLOP + CLOCK_GATE)
    )
    plain = synthesize(UNIT, [tmp_path / "all.lib"], Options(gate_clocks=False))
    gated = synthesize(UNIT, [tmp_path / "all.lib"])
    assert plain.flip_flops == gated.flip_flops and plain.clock_gates is None and gated.clock_gates >= 2
    assert gated.cells < plain.cells and gated.area < plain.area
    assert Options(gate_clocks=False).labels == {"clocks": "not gated"} and Options().labels == {}
