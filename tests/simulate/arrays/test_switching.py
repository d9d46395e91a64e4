"""Parts that switch, counted by hand; events are those of the units, stepped on data of any kind."""

import pytest
import torch

from tests.simulate.units.data import spread
from tests.simulate.units.matrices import neurons
from tilepress.formats.bfp import BFP, encode
from tilepress.hardware import MachineError, read_accelerator
from tilepress.hardware.technology import PARTS, energy_scale
from tilepress.simulate.arrays.costs import group_energy
from tilepress.simulate.arrays.parameters import fitted
from tilepress.simulate.arrays.switching import group_parts, value_parts
from tilepress.simulate.units import anda_apu, anda_compressor, harmonia_converter, harmonia_pe

ANDA, HARMONIA, FIGNA = (read_accelerator(name) for name in ("anda", "harmonia", "figna"))


@pytest.mark.parametrize("mantissa", [1, 4, 8, 16])
def test_a_group_of_anda_by_hand(mantissa):
    """A plane: 64 weights of five bits pass; adders of 6 bits (32), 7 (16), 8, 9, 10 and 11 (one); a sum of 26 bits."""
    tree = 32 * 6 + 16 * 7 + 8 * 8 + 4 * 9 + 2 * 10 + 11
    assert group_parts(ANDA, ANDA.modes[0], mantissa) == pytest.approx(
        {
            "gate": mantissa * 320,
            "add": mantissa * (tree + 26),
            "flip_flop": 64 + 5 + 256 + 26 * mantissa + 3 * 32,
            "multiplexer": 160,
            "fp16_multiply": 1,
            "fp32_add": 1,
        }
    )


@pytest.mark.parametrize("mode, halves, operands, scaled", [(0, 1, 128, 1), (1, 1, 165, 0), (2, 2, 293, 0)])
def test_a_group_of_harmonia_by_hand(mode, halves, operands, scaled):
    """Eight products of 13 bits at a time: adders of 14 (4), 15 (2) and 16 bits, and a sum of 18: 15 on average."""
    parts = group_parts(HARMONIA, HARMONIA.modes[mode], 8)
    fused = mode == 2
    registers = 32 * 9 + 5 + operands + halves * 4 * 18 + fused * 22 + 3 * 32
    expected = {
        "multiply": halves * 32 * 32,
        "gate": halves * 32,
        "add": (halves * 32 + fused) * 15,
        "flip_flop": registers,
        "multiplexer": 160,
        "fp32_add": 1,
    } | ({"fp16_multiply": 1} if scaled else {})
    assert parts == pytest.approx(expected) and group_parts(HARMONIA, HARMONIA.modes[mode], 3) == parts


def test_units_without_a_simulation_switch_what_their_description_counts():
    parts = group_parts(FIGNA, FIGNA.modes[0], 0)
    assert parts["multiply"] == 16 * 224 and parts["multiplexer"] == 16 * 224 + 160 and parts["fp32_add"] == 1
    serial = ANDA.changed(unit={"simulation": None, "cycle": {"gate": 320}})
    assert group_parts(serial, serial.modes[0], 7)["gate"] == 8 * 320


def test_a_value_of_each_converter_by_hand():
    # Anda, 7 bits: 63 + 7 · 64 compares and 64 subtractions of 5 bits, a step of 11 multiplexers a value and bit.
    compressed = value_parts(ANDA.converter, 7)
    registers = 64 * 16 + 5 + 8 * 64
    assert compressed == pytest.approx(
        {"add": 5 * (63 + 7 * 64 + 64) / 64, "multiplexer": 7 * 11, "flip_flop": registers / 64}
    )
    assert value_parts(HARMONIA.converter, 8) == {"add": 10, "multiplexer": 44, "flip_flop": 5 + 9}
    apart = ANDA.changed(converter={"simulation": None, "parts": {"flip_flop": 21, "add": 10}}).converter
    assert value_parts(apart, 7) == {"flip_flop": 8 * 21, "add": 8 * 10}


def test_energy_is_that_of_the_parts_at_the_machine_s_technology():
    """Where the unit was not synthesised."""
    parts = group_parts(ANDA, ANDA.modes[0], 7)
    switched = sum(count * PARTS[name].energy for name, count in parts.items())
    assert group_energy(ANDA.changed(unit={"rtl": None, "cycle": {"gate": 320}}), ANDA.modes[0], 7) == pytest.approx(
        switched * fitted("logic_energy") * energy_scale(16, 0.8)
    )


@pytest.mark.parametrize("kind", ["zeros", "gaussian"])
def test_events_are_those_of_stepped_units_whatever_the_data(kind):
    x = spread(1, 128)[0] if kind == "gaussian" else torch.zeros(128, dtype=torch.float16)
    _, (weights,) = neurons(1, 128, 128)
    planes = anda_compressor.Compressor(6).compress(x)
    assert planes.events == anda_compressor.events(2, 6)
    assert anda_apu.Apu(6).dot(planes.planes, weights).events == anda_apu.events(2, 6)
    pairs = harmonia_pe.linear_pairs(encode(x, BFP(32, 8)), weights)
    assert harmonia_pe.Pe().dot(pairs).events == harmonia_pe.group_events(harmonia_pe.Mode.m8w4).times(4)
    converted = harmonia_converter.Converter(8).convert(x.reshape(4, 32), harmonia_converter.Path.channels)
    assert converted.events == harmonia_converter.events(4, 32, harmonia_converter.Path.channels)


@pytest.mark.parametrize("machine, group", [(ANDA, 64), (HARMONIA, 32)])
def test_a_simulated_unit_has_its_own_group(machine, group):
    other = machine.changed(array={"group": 16})
    with pytest.raises(
        MachineError, match=f"{machine.name}: .* sums groups of {group}, not of 16: leave unit.simulation"
    ):
        group_parts(other, other.modes[0], 8)
    with pytest.raises(MachineError, match=r"leave unit\.simulation"):
        group_energy(other, other.modes[0], 8)
