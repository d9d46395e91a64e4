"""Energies of groups and of values, from what was measured of the synthesised units, by hand: pJ at 7 nm and 0.7 V."""

import pytest

from tilepress.hardware import read_accelerator
from tilepress.hardware.technology import energy_scale
from tilepress.simulate.arrays.costs import group_energy
from tilepress.simulate.arrays.switching import group_parts
from tilepress.simulate.arrays.synthesised import product_energy, value_energy

# Machine, mode, mantissa: pJ of how many products or values.
GROUPS = [
    ("anda", 0, 1, 4.167876976269589, 64),
    ("anda", 0, 8, 12.481855592762825, 64),
    ("anda", 0, 16, 22.495010531376238, 64),
    ("harmonia", 0, 8, 9.545817353082162, 4 * 32),
    ("harmonia", 1, 3, 8.197804042546904, 4 * 32),
    ("harmonia", 2, 8, 8.709855078043805, 2 * 32),
    ("figna", 0, 0, 15.614327828908845, 64),
    ("figna-m11", 0, 0, 11.409192550101906, 64),
    ("figna-m8", 0, 0, 8.151824785622392, 64),
    ("ifpu", 0, 0, 5.385790327489712, 16),
    ("fp-int", 0, 0, 0.6092500407501761, 1),
    ("fp-fp", 0, 0, 0.4966663972155988, 1),
]


@pytest.mark.parametrize("name, mode, mantissa, energy, products", GROUPS)
def test_energy_of_a_group_by_hand(name, mode, mantissa, energy, products):
    machine = read_accelerator(name)
    scale = energy_scale(machine.node, machine.voltage) / energy_scale(7, 0.7)
    expected = machine.array.group * energy / products * scale
    assert group_energy(machine, machine.modes[mode], mantissa) == pytest.approx(expected)


def test_energy_of_a_converted_value_by_hand():
    anda, harmonia = read_accelerator("anda"), read_accelerator("harmonia")
    base = energy_scale(7, 0.7)
    seven = value_energy(anda, anda.converter, 7) * base / energy_scale(16, 0.8)
    assert 64 * seven == pytest.approx(11.779942000510035)
    value = value_energy(harmonia, harmonia.converter, 8) * base / energy_scale(28, 0.9)
    assert 32 * value == pytest.approx(2.0217898734834248)


def test_what_was_not_measured_is_counted_from_parts():
    """Products of FP16 with FP16; units and converters without RTL."""
    fp = read_accelerator("fp-fp")
    halves = fp.mode("fp16", 0, "fp16")
    assert product_energy(fp, halves, 0) is None
    without = fp.changed(unit={"rtl": None})
    assert group_energy(fp, halves) == group_energy(without, halves) == group_energy(without, fp.modes[0])
    assert group_parts(fp, halves, 0)["fp16_multiply"] == 64
    for name in ("tender", "m-ant"):
        machine = read_accelerator(name)
        assert product_energy(machine, machine.modes[0], 0) is None
        assert value_energy(machine, machine.converter, 8) is None
