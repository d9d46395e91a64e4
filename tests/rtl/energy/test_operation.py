"""Energy by hand on a flip-flop and a gate; toggles as a slow reference counts them; netlists as the RTL is."""

import lzma

import numpy as np
import pytest

from tests.rtl.energy.library import CLOCK_GATE, FLOP, GATES, gate, library_text
from tests.rtl.energy.reference import FUNCTIONS, Reference
from tilepress.rtl.energy import Conditions, measure, random_operands
from tilepress.rtl.energy.netlist import netlist_of
from tilepress.rtl.energy.operation import energy_of
from tilepress.rtl.energy.simulation import simulate
from tilepress.rtl.energy.stimuli import cases
from tilepress.rtl.energy.trace import Trace
from tilepress.rtl.liberty import read_library
from tilepress.rtl.synthesis import Options, mapped
from tilepress.rtl.units import unit_of

SLEW = 10e-12


@pytest.fixture(scope="module")
def liberty(tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "round.lib.xz"
    path.write_bytes(lzma.compress(library_text().encode()))
    return [path]


def port(direction, *bits):
    return {"direction": direction, "bits": list(bits)}


def cell(kind, **pins):
    return {"type": kind, "connections": {pin: [net] for pin, net in pins.items()}, "parameters": {}}


def module(ports, **cells):
    return {"ports": ports, "cells": cells}


def bits(*values):
    return np.array(values, np.uint8)[:, None]


def run(description, inputs, begin=0):
    netlist = netlist_of(description, read_library([library_text(GATES + FLOP + CLOCK_GATE)]))
    return netlist, simulate(netlist, Trace(inputs, {}), SLEW, begin)


def test_a_flip_flop_that_toggles_in_every_cycle():
    """FLOP → INV → FLOP, eight cycles, slew 10 ps: by hand, in fJ."""
    ports = {"clk": port("input", 2), "q": port("output", 3)}
    netlist, activity = run(
        module(ports, f=cell("FLOP", C=2, D=4, Q=3), i=cell("INV", A=3, Y=4)), {"clk": bits(*[0] * 8)}
    )
    energy = energy_of(netlist, activity, Conditions(slew=10, clock=500), operations=4)
    assert activity.outputs["q"][:, 0].tolist() == [1, 0] * 4  # the cycle of reset is the first toggle
    inverter = (2.3 + 4.6) / 2 + 3 / 2  # of 2 and 4 fJ at 0 fF, 3 and 6 at 10 fF: at 3 fF; and half of 3 fF · (1 V)²
    flop = (2.2 + 4.4) / 2 + 2 / 2 + (1 + 8) / 2  # output at 2 fF; D rises while Q is 0, and falls while it is 1
    clock = 1 + 0.75  # a rise and a fall of 1 fF; an output follows each rise
    assert energy.combinational == pytest.approx(8 * inverter / 4 / 1000)
    assert energy.registers == pytest.approx(8 * flop / 4 / 1000)
    assert energy.clock == pytest.approx(8 * clock / 4 / 1000)
    assert energy.leakage == pytest.approx(8 * (1 + 3) * 0.5 / 4 * 1e-6)  # nW · ns are 1e-6 pJ
    assert energy.ports == 0 and energy.memories is None


def test_inputs_that_no_output_follows():
    """A rises and falls while B holds the gate: 0.5 fJ a rise, and the charge of the pin."""
    ports = {"a": port("input", 2), "b": port("input", 3), "y": port("output", 4)}
    inputs = {"a": bits(0, 1, 0, 1), "b": bits(0, 0, 0, 0)}
    netlist, activity = run(module(ports, g=cell("NAND", A=2, B=3, Y=4)), inputs)
    energy = energy_of(netlist, activity, Conditions(slew=10), operations=1)
    assert energy.combinational == pytest.approx(2 * 0.5e-3) and energy.ports == pytest.approx(3 * 1e-3)
    assert energy.registers == energy.clock == 0


GATED = module(
    {"clk": port("input", 2), "en": port("input", 5), "q": port("output", 3)},
    f=cell("FLOP", C=6, D=4, Q=3),
    i=cell("INV", A=3, Y=4),
    g={"type": "CKGATE", "connections": {"C": [2], "EN": [5], "TE": ["0"], "G": [6]}, "parameters": {}},
)


def test_a_gated_flip_flop_changes_and_takes_energy_only_where_its_clock_passes():
    """Enabled in cycles 1, 2 and 5 of eight: by hand, in fJ. An enable lets the edge at its cycle's end pass."""
    inputs = {"clk": bits(*[0] * 8), "en": bits(0, 1, 1, 0, 0, 1, 0, 0)}
    netlist, activity = run(GATED, inputs, begin=1)
    assert activity.outputs["q"][:, 0].tolist() == [0, 0, 1, 0, 0, 0, 1, 1]
    assert activity.pulses.tolist() == [3] and activity.cycles == 7
    energy = energy_of(netlist, activity, Conditions(slew=10, clock=500), operations=1)
    passed = (2 + 0.1) + (4 + 0.2)  # the cell's rise and fall with the flip-flop's 1 fF
    stopped = 0.125 + 0.375
    flop = 1 + 0.75  # its pin, a fall; an output follows each rise
    enables = 4 * (0.5 + 1.5) / 2
    assert energy.clock == pytest.approx((3 * (passed + flop) + 4 * stopped + 7 * 4 + enables) / 1000)
    assert energy.ports == pytest.approx(4 * 5 / 2 / 1000)  # toggles of the enable, of which the gate has 5 fF
    assert energy.leakage == pytest.approx(7 * (1 + 3 + 2) * 0.5 * 1e-6)


def test_cycles_before_the_beginning_do_not_count():
    ports = {"a": port("input", 2), "y": port("output", 3)}
    description = module(ports, g=cell("INV", A=2, Y=3))
    _, activity = run(description, {"a": bits(0, 1, 0, 1, 1)}, begin=2)
    assert activity.cycles == 3 and activity.toggles[3] == 2


@pytest.mark.parametrize("clock_gate", ["", CLOCK_GATE], ids=["ungated", "gated"])
@pytest.mark.parametrize(
    "name, settings",
    [
        ("harmonia-offsets", ("rows=2", "columns=4", "channels=16", "top=2")),
        ("anda-compressor", ("lanes=1", "group=16")),
    ],
)
def test_toggles_are_those_of_a_slow_reference(name, settings, clock_gate, tmp_path):
    unit, text = unit_of(name, settings), library_text(GATES + FLOP + clock_gate)
    (tmp_path / "round.lib").write_text(text)
    costs, description = mapped(unit, [tmp_path / "round.lib"])
    assert (costs.clock_gates or 0) >= (2 if clock_gate else 0)
    library = read_library([text])
    trace, _, _ = cases(unit, random_operands(tokens=4, size=64))[0].trace()
    cycles = min(trace.cycles, 60)
    short = Trace({port: bits[:cycles] for port, bits in trace.inputs.items()}, {})
    netlist = netlist_of(description, library)
    activity = simulate(netlist, short, SLEW, begin=5)
    for port_name, seen in activity.outputs.items():
        assert np.array_equal(seen, trace.outputs[port_name][:cycles])
    still = {"clk": [0], "rst": [0]}
    inputs = [still | {port: bits[cycle] for port, bits in short.inputs.items()} for cycle in range(cycles)]
    expected = Reference(description, FUNCTIONS).run([inputs[0] | {"rst": [1]}, *inputs], begin=6)
    assert sum(expected.values()) > 500
    assert {net: activity.toggles[net] for net in expected} == expected


def test_memories_are_counted_in_words(liberty):
    """Each key of the first pass is compared with its channel's word and written back."""
    unit = unit_of("harmonia-offsets", ("rows=2", "columns=4", "channels=16", "top=2"))
    operands = random_operands(tokens=2, size=16)
    _, (measured,) = measure(unit, liberty, operands, Conditions(node=7))
    assert measured.writes == 16 and 16 <= measured.reads <= 2 * 16 and measured.cycles == 2 * 16
    assert measured.energy.memories is None  # CACTI was not run for it
    figures = {metric: (value, labels) for metric, labels, value, _ in measured.figures()}
    assert figures["energy"][0] == pytest.approx(sum(measured.energy.parts.values()))
    assert figures["energy_per_item"][0] == pytest.approx(figures["energy"][0] / 32)
    assert figures["energy"][1]["data"] == "random" and figures["energy"][1]["node"] == 7


def test_a_netlist_that_is_not_the_rtl(liberty, monkeypatch):
    """If a cell did something else than Yosys thinks, the outputs would show it."""
    wrong = library_text().replace('function : "A^B"', 'function : "A+B"')
    monkeypatch.setattr("tilepress.rtl.energy.operation.liberty_text", lambda path: wrong)
    unit = unit_of("harmonia-offsets", ("rows=2", "columns=4", "channels=16", "top=2"))
    with pytest.raises(RuntimeError, match=r"harmonia-offsets: the netlist's .* is not the RTL's in cycle"):
        list(measure(unit, liberty, random_operands(tokens=2, size=16), Conditions())[1])


INVERTER = module({"a": port("input", 2), "y": port("output", 3)}, g=cell("INV", A=2, Y=3))


@pytest.mark.parametrize(
    "description, cells, message",
    [
        (INVERTER, GATES.replace('function : "!A";', "", 1) + FLOP, "cell INV has an output without a function"),
        (INVERTER, GATES.replace('"!A"', '"!E"', 1) + FLOP, "names E, which the cell does not have"),
        (INVERTER, gate("NOT", 1, "!A", "A"), "the library has no cell INV, which the netlist has"),
        (
            module({"y": port("output", 3)}, g=cell("INV", A=3, Y=4), h=cell("INV", A=4, Y=3)),
            GATES,
            "the netlist has a loop of gates",
        ),
        (
            module({}, g=cell("FLOP", C=2, D=3, Q=4), h=cell("FLOP", C=4, D=3, Q=5)),
            FLOP,
            "flip-flops have more than one clock",
        ),
        (
            module({}, g=cell("CKGATE", C=2, EN=3, TE=0, G=4), h=cell("CKGATE", C=4, EN=3, TE=0, G=5)),
            CLOCK_GATE + FLOP,
            "flip-flops have more than one clock",
        ),
        (INVERTER, GATES + CLOCK_GATE.replace("posedge", "negedge"), "clock gate CKGATE is latch_negedge_precontrol;"),
    ],
)
def test_what_cannot_be_simulated(description, cells, message):
    with pytest.raises(ValueError, match=message):
        netlist_of(description, read_library([library_text(cells)]))


def test_what_cannot_be_measured(liberty):
    unit, operands = unit_of("anda-apu"), random_operands()
    with pytest.raises(ValueError, match="energy needs a library of cells: give its files with --liberty"):
        measure(unit, [], operands, Conditions())
    with pytest.raises(ValueError, match="there is no case 'm=17'; there are m=1, m=2, "):
        measure(unit, liberty, operands, Conditions(), ["m=17"])
    for wrong in ({"slew": 0.0}, {"clock": -1.0}, {"clock": float("nan")}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a time of more than 0 ps"):
            Conditions(**wrong)


def test_sizes_are_chosen_for_a_shorter_path(tmp_path):
    """A NAND that is larger and quicker is taken only when sizes may be chosen; the function stays."""
    quick = gate("NANDX2", 5, "!(A&B)", "AB").replace('values ("0.01, 0.01"', 'values ("0.001, 0.001"')
    (tmp_path / "round.lib").write_text(library_text(GATES + quick + FLOP))
    unit = unit_of("harmonia-offsets", ("rows=2", "columns=4", "channels=16", "top=2"))
    operands = random_operands(tokens=2, size=16)
    (plain, _), (sized, measured) = (
        measure(unit, [tmp_path / "round.lib"], operands, Conditions(), options=Options(size=size))
        for size in (False, True)
    )
    assert sized.delay < plain.delay and sized.flip_flops == plain.flip_flops
    assert next(measured).energy.total > 0  # which compares its outputs with the RTL's
