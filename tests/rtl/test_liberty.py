"""Reading Liberty files: expressions, units, tables, and what is refused."""

import itertools

import numpy as np
import pytest

from tests.rtl.energy.library import FLOP, GATES, gate, library_text
from tilepress.rtl.expressions import evaluate
from tilepress.rtl.liberty import read_library

FEMTO = 1e-15


@pytest.mark.parametrize(
    "text, python",
    [
        ("!A", "not A"),
        ("A'", "not A"),
        ("(A B)'", "not (A and B)"),
        ("A + B & C", "A or (B and C)"),
        ("A B+C", "(A and B) or C"),
        ("A ^ B * C", "(A != B) and C"),
        ("!A ^ B'", "(not A) != (not B)"),
        ("(A | !B) (C)", "(A or not B) and C"),
        ("!(A*B)''+0", "not (A and B)"),
        ("1", "True"),
    ],
)
def test_expressions_are_those_of_python(text, python):
    states = np.array(list(itertools.product([False, True], repeat=3))).T
    values = dict(zip("ABC", states, strict=True))
    expected = [eval(python, {}, {name: bool(value[n]) for name, value in values.items()}) for n in range(8)]
    assert evaluate(text, values).tolist() == expected


@pytest.mark.parametrize("text", ["", "A +", "A)", "(A", "A ? B", "*A"])
def test_what_is_no_expression(text):
    with pytest.raises(ValueError, match="boolean expression"):
        evaluate(text, {"A": np.zeros(1, bool)})


def test_units_and_tables():
    library = read_library([library_text()])
    assert library.voltage == 1.0 and set(library.cells) == {"INV", "NAND", "NOR", "XOR", "NAND3", "BUF", "FLOP"}
    inverter, flop = library.cells["INV"], library.cells["FLOP"]
    assert inverter.pin("A").capacitance == pytest.approx(2e-15) and inverter.leakage == pytest.approx(1e-9)
    assert flop.leakage == pytest.approx(3e-9)  # of all states, not the mean of some
    loads = np.array([0, 5, 10, 20]) * FEMTO
    energies = inverter.pin("Y").switching(20e-12, loads)  # supply alone; a rise and a fall on average
    assert energies / FEMTO == pytest.approx([(3 + 6) / 2, (3.5 + 7) / 2, (4 + 8) / 2, (4 + 8) / 2])


def test_axes_in_the_other_order():
    text = library_text().replace(
        "variable_1 : input_transition_time; variable_2 : total_output_net_capacitance;", "X", 1
    )
    text = text.replace("X", "variable_1 : total_output_net_capacitance; variable_2 : input_transition_time;")
    text = text.replace('index_1 ("0.01, 0.03"); index_2 ("0, 10");', 'index_1 ("0, 10"); index_2 ("0.01, 0.03");')
    text = text.replace('"2, 3", "4, 5"', '"2, 4", "3, 5"').replace('"4, 6", "8, 10"', '"4, 8", "6, 10"')
    loads = np.array([0, 5]) * FEMTO
    turned, plain = (read_library([one]).cells["INV"].pin("Y") for one in (text, library_text()))
    assert turned.switching(12e-12, loads) == pytest.approx(plain.switching(12e-12, loads))


def test_other_units_are_the_same_cells():
    """pF in the place of fF, with everything that is counted in them a thousandth."""
    small = library_text(gate("INV", 1, "!A", "A"))
    large = small.replace("(1, ff)", "(1, pf)").replace("capacitance : 2", "capacitance : 0.002")
    one, other = (read_library([text]).cells["INV"] for text in (small, large))
    assert other.pin("A").capacitance == pytest.approx(one.pin("A").capacitance)
    assert other.pin("Y").switching(1e-11, np.zeros(1)) == pytest.approx(
        1000 * one.pin("Y").switching(1e-11, np.zeros(1))
    )


def test_hidden_energy_by_state():
    pin = read_library([library_text()]).cells["FLOP"].pin("D")
    rise, fall = pin.hidden(20e-12, {"Q": np.array([False, True])})
    assert (rise / FEMTO, fall / FEMTO) == (pytest.approx([1, 4]), pytest.approx([2, 8]))


@pytest.mark.parametrize(
    "text, message",
    [
        (
            library_text(gate("INV", 1, "!A", "A", powers="")).replace("internal_power", "other"),
            "no tables of internal",
        ),
        (library_text().replace("nom_voltage : 1.0;", ""), "must all say the same nom_voltage, not none"),
        (library_text().replace('"1ns"', '"1fortnight"'), "'1fortnight' is no unit of a Liberty file"),
        (
            library_text(GATES + FLOP.replace("clocked_on", 'clear : "!R"; clocked_on')),
            "FLOP has an asynchronous reset",
        ),
        (library_text(GATES + FLOP.replace("ff (IQ, IQN)", "latch (IQ, IQN)")), "FLOP has a latch"),
        (library_text().replace("capacitance : 3", "capacitance : much"), r"capacitance of pin \(D\) is no number"),
        (library_text().replace('"2, 3", "4, 5"', '"2, 3", "4"'), "a table of rise_power has 3 values, not 2 · 2"),
        (library_text().replace('"2, 3", "4, 5"', '"2, 3", "4, x"'), "a table of rise_power has 'x' for a number"),
        ("nothing", "a Liberty file begins with library"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_library([text])
